"""Facts that nobody has: calls in which the pieces of facts stand for other pieces.

A name of training can be known by heart, pieces in any order can only be copied. In such a call
every piece of a fact becomes another of its kind wherever it stands - in the persona, in what the
caller says, in the answer. It cannot be spoken so, therefore such calls are silent.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class Scrambler:
    """Which pieces may stand for which.

    Attributes:
        kind: ``[vocabulary]``: beginnings of words, other parts of words, digits; 0 stays.
    """

    kind: NDArray[np.int64]

    @staticmethod
    def of(piece: Callable[[int], str], vocabulary: int) -> "Scrambler":
        """Sort a vocabulary."""
        return Scrambler(np.array([_kind(piece(index)) for index in range(vocabulary)]))

    def draw(self, pieces: Iterable[int], r: np.random.Generator) -> NDArray[np.int16]:
        """Give what every piece of the vocabulary becomes, if these pieces are of facts."""
        table = np.arange(len(self.kind), dtype=np.int16)
        known = np.array(sorted(set(pieces)), dtype=np.int64)
        for kind in range(1, int(self.kind.max()) + 1):
            of_kind = known[self.kind[known] == kind]
            choices = np.flatnonzero(self.kind == kind)
            table[of_kind] = r.choice(choices, len(of_kind), replace=False)
        return table


def _kind(piece: str) -> int:
    begins, letters = piece.startswith(_SPACE), piece.removeprefix(_SPACE)
    if letters.isascii() and letters.isalpha():
        return 1 if begins else 2
    return (3 if begins else 4) if letters.isascii() and letters.isdigit() else 0
