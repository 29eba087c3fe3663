"""Soft edges for speech that is cut out of the model's endless sound: a hard cut is a click.

The model's silence is never quite silent, so a stretch of speech begins and ends in the middle of a
wave. Both ends are bent to zero, as half a cosine; nothing else of what the model says is touched.
"""

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES

FADE_IN_SAMPLES = 120
"""5 ms: long enough not to be a click, too short to soften a consonant."""


def fade_in(pcm: NDArray[np.int16]) -> NDArray[np.int16]:
    """A copy of a stretch's first frame ``[1920]`` that begins at zero."""
    return _scaled(pcm, np.concatenate([_RISE, np.ones(FRAME_SAMPLES - FADE_IN_SAMPLES)]))


def fade_out(pcm: NDArray[np.int16]) -> NDArray[np.int16]:
    """A copy of a stretch's last frame ``[1920]``, silence by then, that ends at zero."""
    return _scaled(pcm, _FALL)


def _half_cosine(num_samples: int) -> NDArray[np.float64]:
    return (1 - np.cos(np.pi * np.arange(num_samples) / num_samples)) / 2


_RISE = _half_cosine(FADE_IN_SAMPLES)
_FALL = _half_cosine(FRAME_SAMPLES)[::-1]


def _scaled(pcm: NDArray[np.int16], gain: NDArray[np.float64]) -> NDArray[np.int16]:
    return np.rint(pcm * gain).astype(np.int16)
