"""The model card of a checkpoint: the text of ``MODEL_CARD.md`` with what was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).parent / "MODEL_CARD.md"
PLACE = "<!-- figures -->"
NUMBERS = ("word error of the agent's speech", "real-time factor on 2 CPU cores")


def figures(measured: Mapping[str, Any], goals: Mapping[str, float]) -> str:
    """Give the measured figures as a Markdown table."""
    rows = ["| figure | measured | goal |", "|---|---|---|"]
    for name, (right, asked) in measured["table"].items():
        share = f"{right / asked:.0%}" if asked else "not measured"
        rows.append(f"| {name} | {right} of {asked} ({share}) | {goals[name]:.0%} |")
    for name in NUMBERS:
        value = measured.get(name)
        rows.append(f"| {name} | {'not measured' if value is None else f'{value:.2f}'} | |")
    return "\n".join(rows)


def write_card(path: Path, measured: Mapping[str, Any], goals: Mapping[str, float]) -> None:
    """Write the card."""
    text = TEMPLATE.read_text(encoding="utf-8").replace(PLACE, figures(measured, goals))
    path.write_text(text, encoding="utf-8")
