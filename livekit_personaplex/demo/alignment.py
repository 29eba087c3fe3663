"""Where one recording occurs in another: how delays are measured on real audio.

Lossy codecs and resampling in between do not matter, for the place with the highest normalised
correlation is taken. Plain numpy.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Match:
    """The best place of one recording in another.

    Attributes:
        sample: Index in the searched recording of the first sample looked for.
        score: Normalised correlation there; 1 is a perfect copy, noise gives about 0.05.
    """

    sample: int
    score: float


def find(needle: NDArray[np.int16], haystack: NDArray[np.int16]) -> Match:
    """Find where ``needle`` occurs in ``haystack``, at any loudness.

    Args:
        needle: What to look for, not silent, at most as long as the other.
        haystack: Where to look.
    """
    assert 0 < len(needle) <= len(haystack), (len(needle), len(haystack))
    part = needle.astype(np.float64) - needle.mean()
    whole = haystack.astype(np.float64)
    size = 1 << (len(whole) + len(part) - 1).bit_length()
    spectrum = np.fft.rfft(whole, size) * np.conj(np.fft.rfft(part, size))
    places = len(whole) - len(part) + 1
    correlation = np.fft.irfft(spectrum, size)[:places]
    sums, energies = _window_sums(whole, len(part)), _window_sums(np.square(whole), len(part))
    local = np.sqrt(np.maximum(energies - np.square(sums) / len(part), 0.0))
    quiet = 1e-3 * local.max() + 1.0
    scores = correlation / (np.maximum(local, quiet) * np.linalg.norm(part))
    best = int(scores.argmax())
    return Match(sample=best, score=float(scores[best]))


def _window_sums(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Sum of every stretch of ``length`` values."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    sums: NDArray[np.float64] = total[length:] - total[:-length]
    return sums
