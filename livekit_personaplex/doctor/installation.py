"""Python and the packages that matter."""

import sys
from importlib.metadata import PackageNotFoundError, version

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.recognizer import INSTALL, PACKAGE, find_model

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


def check_captions(*, is_wanted: bool) -> list[Finding]:
    """Check the recogniser of callers' words, which is optional.

    Args:
        is_wanted: PERSONAPLEX_CAPTIONS asks for it: without it a worker does not start.
    """
    try:
        find_model()
    except ConfigError as error:
        if is_wanted:
            return [Finding("captions", "failure", str(error), INSTALL)]
        text = f"callers' words are not shown: {PACKAGE} is not there"
        return [Finding("captions", "skipped", text, f"if they are to be shown: {INSTALL}")]
    use = "in use" if is_wanted else "in use where PERSONAPLEX_CAPTIONS=local"
    return [Finding("captions", "ok", f"{PACKAGE} {version(PACKAGE)}, {use}")]


def _missing(name: str) -> Finding:
    advice = f"pip install {name}"
    if name == "livekit-agents":
        text = f"{name} is not installed: an engine runs without it, an agent does not"
        return Finding("packages", "warning", text, advice)
    return Finding("packages", "failure", f"{name} is not installed", advice)
