"""Voices: what an agent's first seconds are forced to be, so that it sounds like someone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice prompt, either as codes or as the inputs they summed up to.

    Attributes:
        name: What clients ask for.
        codes: ``[8, F] int64`` codes of F frames of speech, or None.
        embeddings: ``[T, E] float32`` summed inputs of T steps, or None.
        cache: ``[17, 4] int64`` token ring after those steps; None exactly when embeddings are.
    """

    name: str
    codes: NDArray[np.int64] | None = None
    embeddings: NDArray[np.float32] | None = None
    cache: NDArray[np.int64] | None = None
