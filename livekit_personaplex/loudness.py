"""How loud a frame is."""

import math

import numpy as np
from numpy.typing import NDArray


def frame_rms(samples: NDArray[np.int16]) -> float:
    """Root mean square of some samples, of full scale: 0 for digital silence, at most 1."""
    scaled = samples.astype(np.float32)
    return math.sqrt(float(np.dot(scaled, scaled)) / max(1, len(samples))) / 32768.0
