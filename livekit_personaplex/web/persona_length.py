"""How much of the model's window a persona takes."""

from collections.abc import Callable
from dataclasses import dataclass

_CHARS_PER_TOKEN = 4.2
"""Of English in the model's vocabulary of 32,000 pieces, roughly."""
_NUM_TAG_TOKENS = 6
"""What ``<system>`` before and after a persona takes, roughly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonaRuler:
    """Measures personas.

    Attributes:
        window: Steps that the model can look back on; a token of the persona takes one.
        max_tokens: Longest persona that an engine takes.
        count_tokens: Counts exactly; None where the model's vocabulary is not at hand.
    """

    window: int = 3000
    max_tokens: int = 2000
    count_tokens: Callable[[str], int] | None = None

    def measure(self, persona: str) -> dict[str, object]:
        """Give the length of a persona as the page shows it."""
        if not persona.strip():
            tokens = 0
        elif self.count_tokens is None:
            tokens = round(len(persona) / _CHARS_PER_TOKEN) + _NUM_TAG_TOKENS
        else:
            tokens = self.count_tokens(persona)
        return {
            "tokens": tokens,
            "max_tokens": self.max_tokens,
            "window": self.window,
            "is_exact": self.count_tokens is not None,
        }
