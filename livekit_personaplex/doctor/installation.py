"""Python and the packages that matter."""

import sys
from importlib.metadata import PackageNotFoundError, version

from livekit_personaplex.doctor.finding import Finding

_PYTHONS = ((3, 10), (3, 13))
_PACKAGES = ("livekit-agents", "torch", "transformers", "huggingface-hub", "aiohttp")


def check_python(running: tuple[int, int] = sys.version_info[:2]) -> list[Finding]:
    """Check the version of Python."""
    first, last = _PYTHONS
    text = ".".join(str(part) for part in running)
    if first <= running <= last:
        return [Finding("python", "ok", text)]
    return [
        Finding(
            "python",
            "failure",
            f"{text} is not supported",
            "make a virtual environment with Python 3.10 to 3.13 and install this package there",
        )
    ]


def check_packages(names: tuple[str, ...] = _PACKAGES) -> list[Finding]:
    """Check that the packages are installed which the command line does without."""
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    findings = [Finding("packages", "ok", ", ".join(found))] if found else []
    return findings + [_missing(name) for name in missing]


def _missing(name: str) -> Finding:
    advice = f"pip install {name}"
    if name == "livekit-agents":
        text = f"{name} is not installed: an engine runs without it, an agent does not"
        return Finding("packages", "warning", text, advice)
    return Finding("packages", "failure", f"{name} is not installed", advice)
