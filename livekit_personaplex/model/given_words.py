"""Words that a conversation's agent is given to say, laid out for its text stream. Pure numpy.

The model chooses when it says a word, we choose which. How long it may wait before each word is its
patience, in steps without a word: enough to breathe and to be natural, not enough to refuse.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.text import EPAD_TOKEN, Pieces

MAX_GIVEN_TOKENS = 512
"""Given and not said yet, of one conversation: two minutes of speech and more."""

FIRST_PATIENCE = 6
"""A greeting begins within 0.6 s."""
WORD_PATIENCE = 3
PATIENCE_PER_CHARACTER = 0.6
"""Speech passes 15 characters a second, so this is how long the word before sounds, nearly."""
CLAUSE_PATIENCE = 4
SENTENCE_PATIENCE = 8
"""More of it after a comma and after a sentence."""
_CLAUSE_ENDS = (",", ";", ":")
_SENTENCE_ENDS = (".", "?", "!")


@dataclass(frozen=True, slots=True)
class GivenWords:
    """Text tokens to be said, in order.

    Attributes:
        entries: ``[n, 2] int64``: text token, and how many steps without a word may pass before
            it; 0 for a token that goes on with the word begun before it.
    """

    entries: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.entries)


OPENING = GivenWords(np.array([[EPAD_TOKEN, FIRST_PATIENCE]], dtype=np.int64))
"""No word, but the sign that one follows: the model begins to speak, with words of its own."""


def lay_out_words(ids: list[int], tokenizer: Pieces) -> GivenWords:
    """Lay out the tokens of a text.

    Args:
        ids: Of the whole text; tokens that write nothing are left out. Without any that writes
            something: `OPENING`.
        tokenizer: Says what a token writes.

    Raises:
        ConfigError: They are too many.
    """
    entries: list[tuple[int, int]] = []
    word = ""
    for token in ids:
        piece = tokenizer.piece(token)
        if not piece:
            continue
        starts = starts_word(piece)
        patience = (_patience_after(word) if starts else 0) if entries else FIRST_PATIENCE
        entries.append((token, patience))
        written = piece if isinstance(piece, str) else "-"
        word = written if starts else word + written
    if not entries:
        return OPENING
    if len(entries) > MAX_GIVEN_TOKENS:
        raise ConfigError(
            f"a text to say may have {MAX_GIVEN_TOKENS} tokens, got {len(entries)}; say it in parts"
        )
    return GivenWords(np.array(entries, dtype=np.int64))


def starts_word(piece: str | bytes) -> bool:
    """Whether what a token writes begins a word, rather than going on with one."""
    return isinstance(piece, str) and piece.startswith(" ")


def find_word_starts(tokenizer: Pieces, vocabulary: int) -> NDArray[np.bool_]:
    """``[vocabulary] bool``: which tokens begin a word."""
    starts = [starts_word(tokenizer.piece(token)) for token in range(vocabulary)]
    return np.array(starts, dtype=np.bool_)


def _patience_after(word: str) -> int:
    patience = WORD_PATIENCE + round(PATIENCE_PER_CHARACTER * len(word.strip()))
    if word.endswith(_SENTENCE_ENDS):
        return patience + SENTENCE_PATIENCE
    return patience + CLAUSE_PATIENCE if word.endswith(_CLAUSE_ENDS) else patience
