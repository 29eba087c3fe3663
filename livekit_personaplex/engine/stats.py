"""Counters of a running engine. Cheap to keep: what costs is computed when someone asks."""

import math
import time
from collections import deque
from collections.abc import Callable

from livekit_personaplex.audio import FRAME_S
from livekit_personaplex.log import logger
from livekit_personaplex.wire.histogram import HistogramCounter

WINDOW_TICKS = 1_000
"""Ticks that the percentiles look back on."""
WARNING_PERIOD_S = 10.0
TICK_BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.16, 0.24, 0.5)
"""Dense up to the 80 ms of a frame: beyond them a call hears gaps."""
OPEN_BOUNDS_S = (0.02, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 10.0)
CALL_BOUNDS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0)


class ThrottledWarning:
    """A warning about something that may happen at every tick: told now and then, with a count."""

    def __init__(self, message: str, clock_s: Callable[[], float]) -> None:
        """Make a warning that was never told."""
        self._message = message
        self._clock_s = clock_s
        self._told_s = -math.inf
        self._count = 0

    def add(self, count: int) -> None:
        """It happened `count` times more."""
        self._count += count
        now_s = self._clock_s()
        if now_s - self._told_s >= WARNING_PERIOD_S:
            logger.warning(self._message, extra={"count": self._count})
            self._told_s = now_s
            self._count = 0


class EngineCounters:
    """What has happened since the start, and how long the latest ticks took."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Start counting.

        Args:
            clock_s: A clock in seconds.
        """
        self.ticks = 0
        self.overruns = 0
        self.user_frames = 0
        self.agent_frames = 0
        self.dropped_frames = 0
        self.opened = 0
        self.refused = 0
        self.failed = 0
        self.tick_s = HistogramCounter(TICK_BOUNDS_S)
        self.open_s = HistogramCounter(OPEN_BOUNDS_S)
        self.call_audio_s = HistogramCounter(CALL_BOUNDS_S)
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._overrun_warning = ThrottledWarning(
            "ticks take longer than a frame lasts; use fewer slots or a faster device", clock_s
        )
        self._drop_warning = ThrottledWarning(
            "user frames come faster than ticks take them; the oldest are dropped", clock_s
        )
        self._durations_s: deque[float] = deque(maxlen=WINDOW_TICKS)

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return self._clock_s() - self._began_s

    def add_tick(self, tick_s: float) -> None:
        """Count a tick; one that took longer than a frame lasts is an overrun, and is logged."""
        self.ticks += 1
        self._durations_s.append(tick_s)
        self.tick_s.add(tick_s)
        if tick_s > FRAME_S:
            self.overruns += 1
            self._overrun_warning.add(1)

    def add_dropped(self, num_frames: int) -> None:
        """Count user frames that a full backlog pushed out."""
        if num_frames:
            self.dropped_frames += num_frames
            self._drop_warning.add(num_frames)

    def tick_ms(self, *quantiles: float) -> list[float]:
        """Give quantiles of the latest ticks in milliseconds; 0 when there were none."""
        ordered = sorted(self._durations_s)
        if not ordered:
            return [0.0 for _ in quantiles]
        last = len(ordered) - 1
        return [round(ordered[math.ceil(q * last)] * 1e3, 3) for q in quantiles]
