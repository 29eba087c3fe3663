"""The scheduler, tick by tick: who is due, what is dropped, whose a result is."""

import numpy as np
import pytest

from livekit_personaplex.audio import FRAME_BYTES, FRAME_SAMPLES, NUM_TOKEN_ROWS
from livekit_personaplex.engine.core_protocol import AgentStep, TickResult
from livekit_personaplex.engine.scheduler import Scheduler, TickPlan
from livekit_personaplex.wire.protocol import UserFrame


def user_frame(number: int) -> UserFrame:
    return UserFrame(number, np.full(FRAME_SAMPLES, number, dtype="<i2").tobytes())


def result_for(plan: TickPlan, *opened: int) -> TickResult:
    pcm, tokens = np.zeros(FRAME_SAMPLES, np.int16), np.zeros(NUM_TOKEN_ROWS, np.int64)
    return TickResult([AgentStep(slot, pcm, tokens) for slot in plan.frames], list(opened))


def live_scheduler(*sessions: str, max_backlog_frames: int = 3) -> Scheduler:
    """A scheduler whose sessions, in slots 0, 1, ..., have done step 0."""
    scheduler = Scheduler(max_backlog_frames)
    for slot, session_id in enumerate(sessions):
        scheduler.add(session_id, slot)
        scheduler.begin_prompt(session_id)
    plan = scheduler.plan_tick()
    scheduler.finish_tick(plan, result_for(plan, *range(len(sessions))))
    plan = scheduler.plan_tick()
    assert set(plan.frames.values()) == {None}
    scheduler.finish_tick(plan, result_for(plan))
    return scheduler


def test_a_session_without_a_prompt_gives_no_work() -> None:
    scheduler = Scheduler(3)
    scheduler.add("ann", 0)
    scheduler.push("ann", user_frame(0))
    assert not scheduler.has_work
    assert scheduler.plan_tick().owners == {}


def test_a_waiting_prompt_is_work_without_any_frame() -> None:
    scheduler = Scheduler(3)
    scheduler.add("ann", 0)
    scheduler.begin_prompt("ann")
    for _ in range(3):  # a prompt that takes several ticks
        assert scheduler.has_work
        plan = scheduler.plan_tick()
        assert plan.frames == {}
        assert scheduler.finish_tick(plan, result_for(plan)).opened == []


def test_step_0_runs_right_after_opening_and_hears_nothing_even_when_frames_wait() -> None:
    scheduler = Scheduler(3)
    scheduler.add("ann", 2)
    scheduler.push("ann", user_frame(0))
    scheduler.begin_prompt("ann")
    plan = scheduler.plan_tick()
    assert scheduler.finish_tick(plan, result_for(plan, 2)).opened == ["ann"]
    plan = scheduler.plan_tick()
    assert plan.frames == {2: None}
    [step] = scheduler.finish_tick(plan, result_for(plan)).steps
    assert (step.session_id, step.heard) == ("ann", None)
    plan = scheduler.plan_tick()
    assert plan.heard == {2: user_frame(0)}


def test_a_tick_takes_one_frame_of_every_session_that_has_one() -> None:
    scheduler = live_scheduler("ann", "bob", "carl")
    for number in range(2):
        scheduler.push("ann", user_frame(number))
    scheduler.push("carl", user_frame(7))
    plan = scheduler.plan_tick()
    assert {slot: int(pcm[0]) for slot, pcm in plan.frames.items()} == {0: 0, 2: 7}
    assert all(
        pcm.dtype == np.int16 and pcm.shape == (FRAME_SAMPLES,) for pcm in plan.frames.values()
    )
    assert scheduler.has_work
    plan = scheduler.plan_tick()
    assert {slot: int(pcm[0]) for slot, pcm in plan.frames.items()} == {0: 1}
    assert not scheduler.has_work


def test_the_frame_given_to_the_core_is_its_own_to_write() -> None:
    scheduler = live_scheduler("ann")
    frame = UserFrame(0, bytes(FRAME_BYTES))
    scheduler.push("ann", frame)
    scheduler.plan_tick().frames[0][:] = 1
    assert frame.pcm == bytes(FRAME_BYTES)


def test_a_full_backlog_keeps_the_newest_audio_and_counts_what_it_drops() -> None:
    scheduler = live_scheduler("ann", "bob", max_backlog_frames=3)
    dropped = [scheduler.push("ann", user_frame(number)) for number in range(5)]
    assert dropped == [0, 0, 0, 1, 1]
    assert scheduler.push("bob", user_frame(0)) == 0
    assert scheduler.backlog_frames == 4
    heard = [scheduler.plan_tick().heard[0].number for _ in range(3)]
    assert heard == [2, 3, 4]


def test_results_name_their_owner_and_the_frame_behind_them() -> None:
    scheduler = live_scheduler("ann", "bob")
    scheduler.push("bob", user_frame(3))
    plan = scheduler.plan_tick()
    [step] = scheduler.finish_tick(plan, result_for(plan)).steps
    assert (step.session_id, step.heard, step.step.slot) == ("bob", user_frame(3), 1)


def test_results_for_a_session_that_left_in_mid_tick_do_not_reach_the_next_owner() -> None:
    scheduler = live_scheduler("ann", "bob")
    scheduler.push("ann", user_frame(0))
    scheduler.push("bob", user_frame(0))
    plan = scheduler.plan_tick()
    scheduler.remove("ann")
    scheduler.add("carl", 0)
    report = scheduler.finish_tick(plan, result_for(plan))
    assert [step.session_id for step in report.steps] == ["bob"]


def test_an_opening_that_ends_after_its_session_left_opens_nobody() -> None:
    scheduler = Scheduler(3)
    scheduler.add("ann", 0)
    scheduler.begin_prompt("ann")
    plan = scheduler.plan_tick()
    scheduler.remove("ann")
    scheduler.add("bob", 0)
    assert scheduler.finish_tick(plan, result_for(plan, 0)).opened == []
    assert not scheduler.has_work


def test_frames_of_a_session_that_is_gone_are_ignored() -> None:
    scheduler = live_scheduler("ann")
    scheduler.remove("ann")
    assert scheduler.push("ann", user_frame(0)) == 0
    assert not scheduler.has_work and scheduler.backlog_frames == 0


def test_a_core_that_steps_others_than_asked_is_a_broken_invariant() -> None:
    scheduler = live_scheduler("ann", "bob")
    scheduler.push("ann", user_frame(0))
    plan = scheduler.plan_tick()
    with pytest.raises(AssertionError, match="asked for"):
        scheduler.finish_tick(plan, TickResult([], []))


def test_prompts_and_live_steps_take_turns() -> None:
    scheduler = Scheduler(max_backlog_frames=4)
    scheduler.add("ann", 0)
    scheduler.begin_prompt("ann")
    plan = scheduler.plan_tick()
    scheduler.finish_tick(plan, TickResult([], [0]))
    scheduler.finish_tick(plan := scheduler.plan_tick(), result_for(plan))
    scheduler.add("bob", 1)
    scheduler.begin_prompt("bob")
    for number in range(4):
        scheduler.push("ann", UserFrame(number, bytes(FRAME_BYTES)))
    turns = []
    for _ in range(6):
        plan = scheduler.plan_tick()
        turns.append(sorted(plan.frames) or sorted(plan.owners))
        scheduler.finish_tick(plan, result_for(plan))
    assert turns == [[1], [0], [1], [0], [1], [0]]
