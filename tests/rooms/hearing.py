"""Whether one recording is in another, part by part.

On a busy machine jitter buffers stretch and cut a little, so a long sound need not be found as one.
"""

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.recording import rms

PART_SAMPLES = 9_600
"""0.4 s: long enough to be unmistakable."""
MIN_SCORE = 0.35
"""Opus keeps about half of the small model's noise; other parts of it score up to 0.25."""
MIN_RMS = 0.01
"""Quieter parts sound like any other."""


def find_parts(sound: NDArray[np.int16], place: NDArray[np.int16]) -> list[int | None]:
    """Shift, in samples, at which each loud part of ``sound`` is in ``place``; None: not there."""
    shifts: list[int | None] = []
    for begin in range(0, len(sound) - PART_SAMPLES + 1, PART_SAMPLES):
        part = sound[begin : begin + PART_SAMPLES]
        if rms(part) < MIN_RMS:
            continue
        match = find(part, place)
        shifts.append(match.sample - begin if match.score >= MIN_SCORE else None)
    return shifts
