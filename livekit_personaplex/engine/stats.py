"""Counters of a running engine. Cheap to keep: what costs is computed when someone asks."""

import math
import time
from collections import deque
from collections.abc import Callable

from livekit_personaplex.audio import FRAME_S
from livekit_personaplex.log import logger

WINDOW_TICKS = 1_000
"""Ticks that the percentiles look back on."""
OVERRUN_LOG_S = 10.0


class EngineCounters:
    """What has happened since the start, and how long the latest ticks took."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Start counting.

        Args:
            clock_s: A clock in seconds.
        """
        self.ticks = 0
        self.overruns = 0
        self.agent_frames = 0
        self.dropped_frames = 0
        self.opened = 0
        self.refused = 0
        self.failed = 0
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._told_s = -math.inf
        self._num_untold = 0
        self._durations_s: deque[float] = deque(maxlen=WINDOW_TICKS)

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return self._clock_s() - self._began_s

    def add_tick(self, tick_s: float) -> None:
        """Count a tick; one that took longer than a frame lasts is an overrun, and is logged."""
        self.ticks += 1
        self._durations_s.append(tick_s)
        if tick_s > FRAME_S:
            self.overruns += 1
            self._num_untold += 1
            self._tell_overruns()

    def tick_ms(self, *quantiles: float) -> list[float]:
        """Give quantiles of the latest ticks in milliseconds; 0 when there were none."""
        ordered = sorted(self._durations_s)
        if not ordered:
            return [0.0 for _ in quantiles]
        last = len(ordered) - 1
        return [round(ordered[math.ceil(q * last)] * 1e3, 3) for q in quantiles]

    def _tell_overruns(self) -> None:
        now_s = self._clock_s()
        if now_s - self._told_s < OVERRUN_LOG_S:
            return
        logger.warning(
            "ticks take longer than a frame lasts; use fewer slots or a faster device",
            extra={"overruns": self._num_untold, "latest_ms": round(self._durations_s[-1] * 1e3)},
        )
        self._told_s = now_s
        self._num_untold = 0
