"""Callers who mute, unpublish, leave and come back: for the model time passes, and only time.

Each says one question before and another one after. Where the engine heard them tells how much time
passed for the model meanwhile; what the caller heard tells whether the agent fell behind.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.latency import measure_delays_s
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import Recording, rms
from tests.rooms.calling import calling
from tests.rooms.hearing import PART_SAMPLES, find_parts
from tests.rooms.patience import in_real_time
from tests.rooms.replay import RecordedCall
from tests.rooms.speech import read_question
from tests.rooms.worker import RoomWorker, run_worker

pytestmark = pytest.mark.room

BEFORE, AFTER = read_question("late_fee"), read_question("opening_hours")
PART_S = PART_SAMPLES / SAMPLE_RATE_HZ
SLACK_S = 0.15
"""What jitter buffers may add or take on a busy machine."""


@pytest.fixture(scope="module")
def worker(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoomWorker]:
    with run_worker(livekit, tmp_path_factory.mktemp("worker"), slots=2) as running:
        yield running


@dataclass(frozen=True)
class Said:
    """One question, as the caller said it and what was heard then."""

    question: NDArray[np.int16]
    sent: Recording
    heard: Recording

    def start_s(self) -> float:
        """When the caller began it."""
        return self.sent.start_s(find(self.question, self.sent.samples).sample)

    def delay_s(self, call: RecordedCall) -> float:
        """How long the caller's voice took to come back in the agent's, around it."""
        delays_s = measure_delays_s(self.question, self.sent, self.heard, call.audio, margin_s=0.8)
        assert delays_s, "the agent was not heard"
        return median(delays_s)


async def say(caller: Caller, question: NDArray[np.int16]) -> Said:
    caller.microphone.say(question)
    await caller.microphone.said()
    await asyncio.sleep(1.0)
    return Said(question, caller.microphone.sent, caller.heard)


async def hear_agent(caller: Caller) -> None:
    await caller.until(
        lambda: caller.agent_state == "speaking", what="the agent speaks", timeout_s=30.0
    )
    await asyncio.sleep(0.5)


async def hang_up(caller: Caller, worker: RoomWorker, known: set[Path]) -> RecordedCall:
    await caller.leave()
    return RecordedCall.read(await worker.next_recording(known))


def engine_start_s(said: Said, call: RecordedCall) -> float:
    """Where in the model's time the question began."""
    shifts = [shift for shift in find_parts(said.question, call.audio.user) if shift is not None]
    assert len(shifts) >= 3, "the engine did not hear the question"
    return median(shifts) / SAMPLE_RATE_HZ


def check(first: Said, second: Said, call: RecordedCall) -> None:
    """The same time passed for caller and model, and the agent is as prompt as before."""
    lived_s = engine_start_s(second, call) - engine_start_s(first, call)
    assert abs(lived_s - (second.start_s() - first.start_s())) < SLACK_S
    assert abs(second.delay_s(call) - first.delay_s(call)) < SLACK_S


def check_goes_on(heard: Recording, call: RecordedCall) -> None:
    """The caller heard the agent without a hole and without a burst."""
    samples = heard.samples
    found = [s for s in find_parts(samples[SAMPLE_RATE_HZ:], call.audio.agent) if s is not None]
    assert len(found) * PART_S > 0.6 * (len(samples) / SAMPLE_RATE_HZ - 1.5)
    assert max(found) - min(found) < 2 * SLACK_S * SAMPLE_RATE_HZ


def silent_stretch_s(call: RecordedCall) -> float:
    """The longest run of frames in which the engine heard nothing at all."""
    longest = run = 0
    for frame in call.frames:
        run = run + 1 if rms(frame) < 1e-3 else 0
        longest = max(longest, run)
    return longest * 0.08


def check_silence(
    worker: RoomWorker,
    scenario: Callable[[], Coroutine[None, None, tuple[Said, Said, RecordedCall]]],
    *,
    longer_than_s: float,
) -> None:
    """A caller who could not be heard between two questions was silence, and the agent went on."""

    def attempt() -> None:
        first, second, call = asyncio.run(scenario())
        check(first, second, call)
        check_goes_on(second.heard, call)
        assert silent_stretch_s(call) > longer_than_s

    in_real_time(worker, attempt)


def test_a_muted_caller_is_silence_and_the_agent_goes_on(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> tuple[Said, Said, RecordedCall]:
        known = worker.recordings()
        async with calling(livekit) as caller:
            await caller.publish()
            await hear_agent(caller)
            first = await say(caller, BEFORE)
            caller.microphone.track.mute()
            await asyncio.sleep(5.0)
            caller.microphone.track.unmute()
            second = await say(caller, AFTER)
            return first, second, await hang_up(caller, worker, known)

    check_silence(worker, scenario, longer_than_s=4.5)


def test_an_unpublished_microphone_is_silence_until_it_is_published_again(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> tuple[Said, Said, RecordedCall]:
        known = worker.recordings()
        async with calling(livekit) as caller:
            await caller.publish()
            await hear_agent(caller)
            first = await say(caller, BEFORE)
            await caller.unpublish()
            await asyncio.sleep(3.0)
            await caller.publish()
            await asyncio.sleep(1.0)
            second = await say(caller, AFTER)
            return first, second, await hang_up(caller, worker, known)

    check_silence(worker, scenario, longer_than_s=2.5)


def test_who_leaves_and_comes_back_finds_the_same_conversation(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> tuple[Said, Said, RecordedCall]:
        known = worker.recordings()
        async with calling(livekit, outlives_s=6) as caller:
            await caller.publish()
            await hear_agent(caller)
            first = await say(caller, BEFORE)
            await caller.leave()
            await asyncio.sleep(3.0)
            again = await Caller.join(livekit, room=caller.room.name)
            try:
                await again.publish()
                await again.until(
                    lambda: bool(again.heard.pieces), what="the agent", timeout_s=20.0
                )
                await asyncio.sleep(1.0)
                second = await say(again, AFTER)
            finally:
                await again.leave()
            return first, second, await hang_up(again, worker, known)

    check_silence(worker, scenario, longer_than_s=2.5)


def test_who_speaks_at_once_is_heard_from_the_agents_first_moment_on(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> tuple[Said, Said, RecordedCall]:
        known = worker.recordings()
        async with calling(livekit) as caller:
            microphone = await caller.publish()
            microphone.say(BEFORE)
            microphone.say(BEFORE[::-1])  # 4 s of speech, wherever in it the agent arrives
            await microphone.said()
            await asyncio.sleep(1.0)
            first = Said(BEFORE, microphone.sent, caller.heard)
            second = await say(caller, AFTER)
            return first, second, await hang_up(caller, worker, known)

    def attempt() -> None:
        first, second, call = asyncio.run(scenario())
        assert second.delay_s(call) < 0.6
        # Whatever was heard of the early speech was heard as it was said, not in a heap later on.
        sent = first.sent.samples
        shift = find(AFTER, sent).sample - engine_start_s(second, call) * SAMPLE_RATE_HZ
        early = sent[: 2 * len(BEFORE)]
        parts = [s for s in find_parts(early, call.audio.user) if s is not None]
        assert len(parts) >= 4
        assert all(abs(-s - shift) < SLACK_S * SAMPLE_RATE_HZ for s in parts)

    in_real_time(worker, attempt)
