"""How many calls this worker can still take: what LiveKit is told as load, and asks per request."""

from collections.abc import Set

from livekit_personaplex.wire.stats import EngineStats


class Capacity:
    """Counts the slots of all engines that are taken or spoken for.

    `load` only reads, so LiveKit's load thread may call it; everything else belongs on the
    worker's event loop.

    Attributes:
        num_slots: Slots of the engines that take calls now.
        num_used: Those of them that are not free.
        num_ready: Engines that take calls now.
        num_refused: Calls that were left to other workers since the start.
        engines: Latest counters of each engine that has told them, by its name.
    """

    def __init__(self) -> None:
        """Start full: nothing is known of an engine."""
        self.num_slots = 0
        self.num_used = 0
        self.num_ready = 0
        self.num_refused = 0
        self.engines: dict[str, EngineStats] = {}
        self._reserved: frozenset[str] = frozenset()

    def update(self, engine: str, stats: EngineStats | None) -> None:
        """Take an engine's latest counters; None, or one that is not ready: it takes no calls."""
        engines = {name: known for name, known in self.engines.items() if name != engine}
        if stats is not None:
            engines[engine] = stats
        self.engines = engines  # replaced, never changed: another thread may be reading
        ready = [known for known in engines.values() if known.ready]
        self.num_ready = len(ready)
        self.num_slots = sum(known.slots for known in ready)
        self.num_used = sum(known.used for known in ready)

    def load(self, active_jobs: Set[str]) -> float:
        """Share of the slots that are taken or reserved; 1 while no engine takes calls.

        Args:
            active_jobs: Ids of the jobs that run. Each will have a slot soon, if not yet; the
                engines' count also has the slots of other workers.
        """
        num_slots = self.num_slots
        if num_slots == 0:
            return 1.0
        num_taken = max(self.num_used, len(active_jobs | self._reserved))
        return min(1.0, num_taken / num_slots)

    def reserve(self, job: str, active_jobs: Set[str]) -> bool:
        """Keep a slot for a job that is about to start; False, counted, when there is none."""
        if self.load(active_jobs) >= 1.0:
            self.num_refused += 1
            return False
        self._reserved |= {job}
        return True

    def release(self, job: str) -> None:
        """The job has started, or never will."""
        self._reserved -= {job}
