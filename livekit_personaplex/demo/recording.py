"""What a caller heard, sample by sample, with the moment each part arrived.

Plain numpy: no room, no clock of its own.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ


@dataclass(slots=True)
class Recording:
    """A continuous run of 24 kHz samples and the times at which its pieces were there.

    Attributes:
        pieces: The samples, in order.
        times_s: For each piece, the monotonic clock when its last sample was there.
    """

    pieces: list[NDArray[np.int16]] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    def append(self, samples: NDArray[np.int16], time_s: float) -> None:
        """Add the piece that has just arrived."""
        self.pieces.append(samples)
        self.times_s.append(time_s)

    @property
    def samples(self) -> NDArray[np.int16]:
        """All samples so far as one array."""
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, dtype=np.int16)

    @property
    def duration_s(self) -> float:
        """How much audio is here."""
        return sum(len(piece) for piece in self.pieces) / SAMPLE_RATE_HZ

    def between(self, first_s: float, last_s: float) -> "Recording":
        """The pieces that arrived between two moments."""
        kept = [i for i, at_s in enumerate(self.times_s) if first_s <= at_s <= last_s]
        return Recording([self.pieces[i] for i in kept], [self.times_s[i] for i in kept])

    def start_s(self, sample: int) -> float:
        """The moment at which a sample passed, on the clock of ``times_s``.

        A piece can only be noted late, never early, so the sample clock is laid through the
        piece within two seconds around the sample that was noted soonest.
        """
        ends = np.cumsum([len(piece) for piece in self.pieces])
        origins = np.asarray(self.times_s) - ends / SAMPLE_RATE_HZ
        near = np.abs(ends - sample) <= SAMPLE_RATE_HZ
        return float(origins[near].min() + sample / SAMPLE_RATE_HZ)


def rms(samples: NDArray[np.int16]) -> float:
    """Root mean square of samples scaled to [-1, 1); 0 for none."""
    if not len(samples):
        return 0.0
    return float(np.sqrt(np.mean(np.square(samples.astype(np.float64) / 32768.0))))
