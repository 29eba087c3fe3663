"""The core's thread: when it ticks, what it reports, how it ends."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from livekit_personaplex.engine.thread import (
    CoreEvent,
    CoreFailed,
    CoreLoaded,
    CoreThread,
    CoreTicked,
    OpenFailed,
    SlotFreed,
)
from livekit_personaplex.errors import CheckpointError, ConfigError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.protocol import UserFrame
from tests.fakes import FakeCore, expected_talk, user_frames, wait_until


class Harness:
    """A thread on a fake core, and its events in order."""

    def __init__(self, load: Callable[[], FakeCore]) -> None:
        self.events: queue.Queue[CoreEvent] = queue.Queue()
        self.thread = CoreThread(load, self.events.put, max_backlog_frames=4)

    def open(self, core: FakeCore, session_id: str, slot: int, *, voice: str = "ANN") -> None:
        self.thread.add(session_id, slot)
        self.thread.open(session_id, slot, core.prepare(voice, ""), Sampling(seed=1))

    def next(self) -> CoreEvent:
        return self.events.get(timeout=20.0)

    def next_tick(self) -> CoreTicked:
        event = self.next()
        assert isinstance(event, CoreTicked), event
        return event

    def expect_live(self, session_id: str) -> None:
        """Its prompt is done in one tick, and step 0 follows."""
        assert self.next_tick().report.opened == [session_id]
        assert [step.heard for step in self.next_tick().report.steps] == [None]


@contextmanager
def running(core: FakeCore) -> Iterator[Harness]:
    harness = Harness(lambda: core)
    harness.thread.start()
    try:
        assert isinstance(harness.next(), CoreLoaded)
        yield harness
    finally:
        harness.thread.stop()
        assert harness.thread.join(20.0)


def test_a_session_opens_steps_and_says_what_its_input_makes_of_it() -> None:
    core, frames = FakeCore(), user_frames(3)
    with running(core) as harness:
        harness.open(core, "ann", 1)
        harness.expect_live("ann")
        steps = []
        for number, pcm in enumerate(frames):
            harness.thread.push("ann", UserFrame(number, pcm))
            [step] = harness.next_tick().report.steps
            steps.append(tuple(step.step.tokens.tolist()))
        assert steps == expected_talk(frames).tokens[1:]


def test_a_tick_begins_when_one_session_is_due_and_does_not_wait_for_the_others() -> None:
    core, [pcm] = FakeCore(), user_frames(1)
    with running(core) as harness:
        for slot, session_id in enumerate(["ann", "bob"]):
            harness.open(core, session_id, slot)
            harness.expect_live(session_id)
        harness.thread.push("bob", UserFrame(0, pcm))
        assert [step.session_id for step in harness.next_tick().report.steps] == ["bob"]


def test_frames_that_come_during_a_tick_form_the_next_one_together() -> None:
    tick_may_end = threading.Event()
    core, [pcm] = FakeCore(num_slots=3), user_frames(1)
    with running(core) as harness:
        for slot, session_id in enumerate(["ann", "bob", "carl"]):
            harness.open(core, session_id, slot)
            harness.expect_live(session_id)
        core.on_tick = lambda tick: assert_event(tick_may_end)
        num_ticks = core.num_ticks
        harness.thread.push("ann", UserFrame(0, pcm))
        wait_until(lambda: harness.thread.busy_s > 0)
        harness.thread.push("bob", UserFrame(0, pcm))
        harness.thread.push("carl", UserFrame(0, pcm))
        tick_may_end.set()
        wait_until(lambda: core.num_ticks == num_ticks + 2)
        assert core.batches[-2:] == [[0], [1, 2]]


def test_a_slot_closed_in_mid_tick_is_freed_only_after_the_tick() -> None:
    tick_may_end = threading.Event()
    core, [pcm] = FakeCore(), user_frames(1)
    with running(core) as harness:
        harness.open(core, "ann", 0)
        harness.expect_live("ann")
        core.on_tick = lambda tick: assert_event(tick_may_end)
        harness.thread.push("ann", UserFrame(0, pcm))
        wait_until(lambda: harness.thread.busy_s > 0)
        harness.thread.close("ann", 0)
        assert harness.events.empty() and 0 in core.conversations
        tick_may_end.set()
        harness.next_tick()
        assert harness.next() == SlotFreed("ann")
        assert core.conversations == {}


def test_a_session_closed_in_mid_prompt_never_opens() -> None:
    core = FakeCore(prompt_ticks=1000)
    with running(core) as harness:
        harness.open(core, "ann", 0)
        harness.next_tick()
        harness.thread.close("ann", 0)
        event = harness.next()
        while isinstance(event, CoreTicked):
            assert event.report.opened == []
            event = harness.next()
        assert event == SlotFreed("ann")


def test_a_prompt_that_the_core_refuses_costs_that_session_only() -> None:
    core, [pcm] = FakeCore(), user_frames(1)

    def refuse_slot_1(slot: int) -> None:
        if slot == 1:
            raise ConfigError("this persona does not fit")

    core.on_open = refuse_slot_1
    with running(core) as harness:
        harness.open(core, "ann", 0)
        harness.expect_live("ann")
        harness.open(core, "bob", 1)
        event = harness.next()
        assert isinstance(event, OpenFailed)
        assert (event.session_id, str(event.error)) == ("bob", "this persona does not fit")
        harness.thread.close("bob", 1)
        assert harness.next() == SlotFreed("bob")
        harness.thread.push("ann", UserFrame(0, pcm))
        assert len(harness.next_tick().report.steps) == 1


def test_a_tick_that_raises_ends_the_thread_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore()

    def break_down(tick: int) -> None:
        raise RuntimeError("device lost")

    core.on_tick = break_down
    with running(core) as harness:
        harness.open(core, "ann", 0)
        event = harness.next()
        assert isinstance(event, CoreFailed) and str(event.error) == "device lost"
        assert harness.thread.join(20.0)
        assert "device lost" in caplog.text


def test_loading_that_fails_on_purpose_is_reported_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load() -> FakeCore:
        raise CheckpointError("model.safetensors is missing")

    harness = Harness(load)
    with caplog.at_level(logging.DEBUG):
        harness.thread.start()
        event = harness.next()
    assert isinstance(event, CoreFailed) and isinstance(event.error, CheckpointError)
    assert harness.thread.join(20.0)
    assert caplog.text == ""


def test_an_idle_thread_takes_no_cpu() -> None:
    with running(FakeCore()):
        began_s = time.process_time()
        threading.Event().wait(0.3)
        assert time.process_time() - began_s < 0.02


def test_a_hanging_tick_shows_its_age() -> None:
    tick_may_end = threading.Event()
    core = FakeCore(on_tick=lambda tick: assert_event(tick_may_end))
    with running(core) as harness:
        assert harness.thread.busy_s == 0.0
        harness.open(core, "ann", 0)
        wait_until(lambda: harness.thread.busy_s > 0.02)
        tick_may_end.set()
        wait_until(lambda: harness.thread.busy_s == 0.0)


def assert_event(event: threading.Event) -> None:
    assert event.wait(20.0)
