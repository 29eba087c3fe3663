"""What a worker's own Prometheus port shows of its engines, beside LiveKit's metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.engines import WorkerEngines
from livekit_personaplex.wire.metrics import PREFIX, engine_metrics


class WorkerMetrics(Collector):
    """Reads a worker's state when somebody asks; `collect` may run in any thread."""

    def __init__(
        self, capacity: Capacity, engines: WorkerEngines, *, load: Callable[[], float]
    ) -> None:
        """Make metrics that nobody sees yet; see `shown`.

        Args:
            capacity: What the engines count.
            engines: Their metrics are shown too if they were started here; others show their own.
            load: Share of the slots that are taken.
        """
        self._capacity = capacity
        self._engines = engines
        self._load = load

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show them among this process's metrics, which LiveKit serves on ``prometheus_port``."""
        REGISTRY.register(self)
        try:
            yield
        finally:
            REGISTRY.unregister(self)

    def describe(self) -> list[Metric]:
        """Give nothing: they can be read only once the worker runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give the metrics of this moment; the engines' are up to a second old."""
        capacity = self._capacity
        for name, text, value in (
            ("engines", "engines that this worker has", self._engines.num_engines),
            ("engines_ready", "engines that take calls", capacity.num_ready),
            ("slots", "slots of the engines that take calls", capacity.num_slots),
            ("slots_used", "those that are not free", capacity.num_used),
            ("load", "share of the slots that are taken; at 1 no calls come", self._load()),
        ):
            yield GaugeMetricFamily(f"{PREFIX}worker_{name}", text, value=value)
        for name, text, count in (
            ("calls_refused", "calls left to other workers", capacity.num_refused),
            ("engine_restarts", "engines started again", self._engines.num_restarts),
        ):
            yield CounterMetricFamily(f"{PREFIX}worker_{name}", text, value=count)
        if self._engines.are_ours:
            yield from engine_metrics(capacity.engines)
