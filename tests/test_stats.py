"""Counters of an engine: quantiles over the latest ticks, warnings that do not flood the log."""

import pytest

from livekit_personaplex.engine.stats import WARNING_PERIOD_S, WINDOW_TICKS, EngineCounters


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_quantiles_are_those_of_the_ticks_in_the_window() -> None:
    counters = EngineCounters()
    assert counters.tick_ms(0.5, 1.0) == [0.0, 0.0]
    for ms in range(1, 101):
        counters.add_tick(ms / 1e3 / 2)
    assert counters.tick_ms(0.5, 0.99, 1.0) == [25.5, 50.0, 50.0]
    for _ in range(WINDOW_TICKS):
        counters.add_tick(0.001)
    assert counters.tick_ms(0.5, 0.99, 1.0) == [1.0, 1.0, 1.0]
    assert counters.ticks == WINDOW_TICKS + 100


def test_ticks_longer_than_a_frame_are_counted_each_and_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    counters = EngineCounters(clock)
    counters.add_tick(0.080)
    assert counters.overruns == 0
    for _ in range(5):
        counters.add_tick(0.081)
        clock.now_s += WARNING_PERIOD_S / 4
    assert counters.overruns == 5
    assert [record.count for record in caplog.records] == [1, 4]


def test_dropped_frames_are_counted_each_and_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    counters = EngineCounters(clock)
    counters.add_dropped(0)
    assert caplog.records == []
    for _ in range(3):
        counters.add_dropped(2)
    clock.now_s += WARNING_PERIOD_S
    counters.add_dropped(1)
    assert counters.dropped_frames == 7
    assert [record.count for record in caplog.records] == [2, 5]


def test_uptime_counts_from_the_start() -> None:
    clock = Clock()
    counters = EngineCounters(clock)
    clock.now_s += 2.5
    assert counters.uptime_s == 2.5
