"""What one check found, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failure", "skipped"]
_STATE_WIDTH, _CHECK_WIDTH = 9, 16


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: What was looked at, in a word or two.
        state: ``failure`` keeps calls from being served; ``warning`` does not.
        text: What was found.
        advice: What to do about it; empty when all is well.
    """

    check: str
    state: State
    text: str
    advice: str = ""


def has_failed(findings: Iterable[Finding]) -> bool:
    """Whether any of them keeps calls from being served."""
    return any(finding.state == "failure" for finding in findings)


def write_findings(findings: Iterable[Finding]) -> str:
    """Write findings for a person, one below the other."""
    lines = []
    for finding in findings:
        lines.append(
            f"{finding.state:<{_STATE_WIDTH}}{finding.check:<{_CHECK_WIDTH}}{finding.text}"
        )
        if finding.advice:
            lines.append(" " * (_STATE_WIDTH + _CHECK_WIDTH) + "-> " + finding.advice)
    return "\n".join(lines) + "\n"
