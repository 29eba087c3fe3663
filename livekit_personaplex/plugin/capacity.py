"""How many calls this worker can still take: what LiveKit is told as load, and asks per request."""

from collections.abc import Set

from livekit_personaplex.wire.stats import EngineStats


class Capacity:
    """Counts slots that are taken or spoken for.

    `load` only reads, so LiveKit's load thread may call it; everything else belongs on the
    worker's event loop.
    """

    def __init__(self) -> None:
        """Start full: nothing is known of an engine."""
        self._num_slots = 0
        self._num_used = 0
        self._reserved: frozenset[str] = frozenset()

    def update(self, stats: EngineStats | None) -> None:
        """Take the engine's latest counters; None, or one that is not ready: no call fits."""
        is_ready = stats is not None and stats.ready
        self._num_slots = stats.slots if stats is not None and is_ready else 0
        self._num_used = stats.used if stats is not None else 0

    def load(self, active_jobs: Set[str]) -> float:
        """Share of the slots that are taken or reserved; 1 while the engine takes no calls.

        Args:
            active_jobs: Ids of the jobs that run. Each will have a slot soon, if not yet; the
                engine's count also has the slots of other workers.
        """
        if self._num_slots == 0:
            return 1.0
        num_taken = max(self._num_used, len(active_jobs | self._reserved))
        return min(1.0, num_taken / self._num_slots)

    def reserve(self, job: str, active_jobs: Set[str]) -> bool:
        """Keep a slot for a job that is about to start; False when there is none."""
        if self.load(active_jobs) >= 1.0:
            return False
        self._reserved |= {job}
        return True

    def release(self, job: str) -> None:
        """The job has started, or never will."""
        self._reserved -= {job}
