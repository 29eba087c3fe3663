"""What a benchmark says: distributions of times, as rows of a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TickFigures:
    """Ticks of one engine with some of its slots live.

    Attributes:
        calls: Live slots.
        slots: Slots of the engine, which fix the shapes of its batches.
        kv: ``bf16``, ``fp8`` or ``f32``: keys and values.
        window: Positions that every live slot attends to.
        p50_ms: Median of a whole tick, PCM in host memory to PCM and tokens in host memory.
        p99_ms: 99th percentile.
        max_ms: Longest.
        device_ms: The device's share: a tick replayed without waiting for the host; 0 on a CPU.
        num_ticks: Ticks measured.
    """

    calls: int
    slots: int
    kv: str
    window: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    device_ms: float
    num_ticks: int

    @property
    def idle_share(self) -> float:
        """Share of the median tick in which the device waits for the host."""
        return max(0.0, 1.0 - self.device_ms / self.p50_ms) if self.device_ms else 0.0

    def as_json(self) -> dict[str, float | int | str]:
        """Give the row as the results file keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class OpeningFigures:
    """A call opened beside others that never pause.

    Attributes:
        live_calls: Neighbours.
        prompt_steps: Length of the system prompt.
        ready_ms: Longest time from a request at the start of a tick until the slot may step.
        neighbour_tick_ms: Longest the neighbours waited: a batch of the prompt and their own tick.
        usual_tick_ms: Their median tick without an opening.
    """

    live_calls: int
    prompt_steps: int
    ready_ms: float
    neighbour_tick_ms: float
    usual_tick_ms: float

    def as_json(self) -> dict[str, float | int]:
        """Give the row as the results file keeps it."""
        return asdict(self)


def percentiles_ms(times_s: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum, in milliseconds."""
    times_ms = np.array(times_s) * 1e3
    p50, p99 = np.percentile(times_ms, [50, 99])
    return round(float(p50), 3), round(float(p99), 3), round(float(times_ms.max()), 3)


def tick_table(rows: Sequence[TickFigures]) -> str:
    """Lay rows out for a person."""
    head = "calls  slots  kv    window    p50 ms   p99 ms   max ms   device ms   idle"
    lines = [
        f"{row.calls:5d}  {row.slots:5d}  {row.kv:4s}  {row.window:6d}  {row.p50_ms:8.2f} "
        f"{row.p99_ms:8.2f} {row.max_ms:8.2f}    {row.device_ms:8.2f}  {row.idle_share:5.1%}"
        for row in rows
    ]
    return "\n".join([head, *lines])
