"""How much sharper than the original a rendering bends: clicks, by measure.

A click is a corner in the wave, a second difference far above those around it. What an original has
of them is sound; only what was put in counts.
"""

import numpy as np
from numpy.typing import NDArray

NEAR_SAMPLES = 240
"""10 ms: an ear hears a corner against what is within that."""
FLOOR = 4.0
"""Rounding twice gives as much of it."""


def sharpest(rendered: NDArray[np.int16], original: NDArray[np.int16]) -> tuple[float, int]:
    """The sharpest corner of a rendering against the sharpest of the original within 10 ms.

    Returns:
        Their ratio, about 1 without clicks, and the sample at which it is.
    """
    there = _corners(rendered)
    around = np.maximum(_corners(original), FLOOR)
    padded = np.pad(around, NEAR_SAMPLES, mode="edge")
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEAR_SAMPLES + 1).max(axis=1)
    ratio = there / near
    return float(ratio.max()), int(ratio.argmax())


def _corners(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    return np.abs(np.diff(samples.astype(np.float64), n=2, prepend=0, append=0))
