"""Counts of how large things were, in fixed buckets: kept by an engine, read by whoever asks."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram as it stood at one moment.

    Attributes:
        bounds: Upper bounds of the buckets, growing; a last bucket without bound follows.
        counts: How many fell into each bucket; one more than there are bounds.
        total: Sum of everything counted.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)
    total: float = 0.0

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1 or list(self.bounds) != sorted(self.bounds):
            raise ValueError(f"{len(self.bounds)} bounds and {len(self.counts)} counts do not fit")


class HistogramCounter:
    """A histogram that is being counted. Cheap enough for every tick."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start at zero, with the upper bounds of the buckets."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count a value; one that equals a bound belongs to the bucket below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Histogram:
        """Give the counts of this moment."""
        return Histogram(self._bounds, tuple(self._counts), self._total)
