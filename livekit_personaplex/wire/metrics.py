"""An engine's counters as Prometheus metrics: what ``/metrics`` of an engine and of a worker show.

Every metric has the label ``engine``, the engine's device or address. Import it only where metrics
are asked for: an engine runs without the Prometheus client.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from livekit_personaplex.wire.histogram import Histogram
from livekit_personaplex.wire.stats import EngineStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "personaplex_"
_LABELS = ("engine",)

_Number = Callable[[EngineStats], float]

_GAUGES: dict[str, tuple[str, _Number]] = {
    "engine_ready": ("1 while the engine takes calls", lambda stats: float(stats.ready)),
    "slots": ("conversations that fit at a time", lambda stats: stats.slots),
    "slots_used": ("slots that are not free", lambda stats: stats.used),
    "load": ("share of the slots that are not free", lambda stats: stats.load),
    "backlog_frames": ("user frames that wait for a tick", lambda stats: stats.backlog_frames),
    "engine_uptime_seconds": ("since the engine started", lambda stats: stats.uptime_s),
}
_COUNTERS: dict[str, tuple[str, _Number]] = {
    "tick_overruns": ("ticks longer than a frame, 80 ms", lambda stats: stats.overruns),
    "user_frames": ("frames of 80 ms that callers sent", lambda stats: stats.user_frames),
    "user_frames_dropped": (
        "user frames that a full backlog pushed out",
        lambda stats: stats.dropped_frames,
    ),
    "agent_frames": ("frames of 80 ms that the model made", lambda stats: stats.agent_frames),
    "sessions_opened": ("sessions that became ready", lambda stats: stats.opened),
    "sessions_refused": (
        "sessions refused: no free slot, or voice, persona or sampling unusable",
        lambda stats: stats.refused,
    ),
    "sessions_failed": ("sessions that an error ended", lambda stats: stats.failed),
}
_HISTOGRAMS: dict[str, tuple[str, Callable[[EngineStats], Histogram]]] = {
    "tick_seconds": ("how long ticks took", lambda stats: stats.tick_s),
    "open_seconds": ("from a request to a session that is ready", lambda stats: stats.open_s),
    "call_audio_seconds": (
        "audio that the model made in each call that has ended",
        lambda stats: stats.call_audio_s,
    ),
}


def engine_metrics(engines: Mapping[str, EngineStats]) -> Iterator[Metric]:
    """Give the metrics of some engines.

    Args:
        engines: Counters by the value of the label ``engine``.
    """
    for name, (text, read) in _GAUGES.items():
        gauge = GaugeMetricFamily(PREFIX + name, text, labels=_LABELS)
        for engine, stats in engines.items():
            gauge.add_metric([engine], read(stats))
        yield gauge
    for name, (text, read) in _COUNTERS.items():
        counter = CounterMetricFamily(PREFIX + name, text, labels=_LABELS)
        for engine, stats in engines.items():
            counter.add_metric([engine], read(stats))
        yield counter
    for name, (text, pick) in _HISTOGRAMS.items():
        histogram = HistogramMetricFamily(PREFIX + name, text, labels=_LABELS)
        for engine, stats in engines.items():
            counted = pick(stats)
            histogram.add_metric([engine], _cumulate(counted), counted.total)
        yield histogram


def render_engine_metrics(engine: str, stats: EngineStats) -> bytes:
    """Write the metrics of one engine in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collected(list(engine_metrics({engine: stats}))))
    return generate_latest(registry)


class _Collected(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _cumulate(histogram: Histogram) -> list[tuple[str, float]]:
    """Give the buckets as Prometheus wants them: each with all that is below it."""
    bounds = ["+Inf" if math.isinf(b) else repr(float(b)) for b in (*histogram.bounds, math.inf)]
    return list(zip(bounds, itertools.accumulate(map(float, histogram.counts)), strict=True))
