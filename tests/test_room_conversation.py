"""A caller talks with the agent in a real room: what is heard, read and remembered is one thing."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.caller import Caller, Words
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import rms
from livekit_personaplex.engine.offline import OfflineConversation
from tests.rooms.calling import GREEDY, calling
from tests.rooms.hearing import find_parts
from tests.rooms.patience import in_real_time
from tests.rooms.replay import RecordedCall, replay
from tests.rooms.speech import read_question
from tests.rooms.worker import RoomWorker, run_worker

pytestmark = pytest.mark.room

PERSONA = "You work for Blue Heron Library."


@dataclass(frozen=True)
class Conversation:
    """One whole call from every side."""

    caller: Caller
    call: RecordedCall
    offline: OfflineConversation
    report: dict[str, Any]


async def hold(livekit: LiveKitCredentials, worker: RoomWorker) -> Conversation:
    known = worker.recordings()
    async with calling(livekit, dispatch=GREEDY | {"persona": PERSONA}) as caller:
        microphone = await caller.publish()
        await caller.until(
            lambda: caller.agent_state == "speaking", what="the agent speaks", timeout_s=30.0
        )
        microphone.say(read_question("opening_hours"))
        await microphone.said()
        await asyncio.sleep(4.0)
    call = RecordedCall.read(await worker.next_recording(known))
    report = await worker.next_report(caller.room.name)
    return Conversation(caller, call, replay(call), report)


@pytest.fixture(scope="module")
def conversation(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conversation]:
    with run_worker(livekit, tmp_path_factory.mktemp("worker"), slots=2) as worker:
        yield in_real_time(worker, lambda: asyncio.run(hold(livekit, worker)), is_strict=True)


def test_tokens_and_voice_equal_an_offline_run_over_what_the_engine_heard(
    conversation: Conversation,
) -> None:
    call, offline = conversation.call, conversation.offline
    assert call.sampling.greedy and call.tokens.shape[1] > 60
    assert np.array_equal(call.tokens, offline.tokens)
    difference = call.audio.agent.astype(int) - offline.pcm
    assert np.sqrt(np.mean(np.square(difference))) / 32768 < 1e-4


def test_the_engine_hears_the_question_that_the_caller_asked(conversation: Conversation) -> None:
    question = read_question("opening_hours")
    shifts = find_parts(question, conversation.call.audio.user)
    assert sum(shift is not None for shift in shifts) >= len(shifts) - 1


def test_the_caller_hears_the_agents_voice_whole(conversation: Conversation) -> None:
    heard = conversation.caller.heard.samples
    assert rms(heard) > 0.01
    # What was said while the caller was there: the last second was not.
    spoken = conversation.call.audio.agent[: len(heard) - SAMPLE_RATE_HZ]
    shifts = find_parts(spoken, heard)
    found = [shift for shift in shifts if shift is not None]
    assert len(found) >= 0.8 * len(shifts)
    # One stretch of speech: nothing is missing between its parts and nothing was put in.
    assert max(found) - min(found) < 0.25 * SAMPLE_RATE_HZ


def words_read(conversation: Conversation) -> list[Words]:
    """What the caller read of the agent, in order, as far as LiveKit shows it at once.

    LiveKit takes "<" and a letter for the beginning of markup and keeps back what follows until
    it knows better, which with the jumbled words of a random model may be never.
    """
    caller, shown, num_shown = conversation.caller, [], 0
    plain = conversation.offline.text.lstrip(" ").split("<")[0]
    for words in caller.words:
        num_shown += len(words.text)
        if words.identity != caller.identity and words.text and num_shown <= len(plain):
            shown.append(words)
    return shown


def test_the_caller_reads_the_agents_words_in_order(conversation: Conversation) -> None:
    read = "".join(words.text for words in words_read(conversation))
    said = conversation.offline.text.lstrip(" ")
    assert said.startswith(read)
    assert len(read) > 0.6 * len(said.split("<")[0])


def test_words_come_with_the_sound_that_carries_them(conversation: Conversation) -> None:
    heard, offline = conversation.caller.heard, conversation.offline
    window = conversation.call.audio.agent[10 * FRAME_SAMPLES : 40 * FRAME_SAMPLES]
    origin = find(window, heard.samples).sample - 10 * FRAME_SAMPLES
    ends = list(accumulate(len(text) for text in offline.texts))
    num_read = 0
    for words in words_read(conversation):
        num_read += len(words.text)
        frame = next(index for index, end in enumerate(ends) if end >= num_read)
        late_s = words.time_s - heard.start_s(origin + frame * FRAME_SAMPLES)
        assert -0.5 < late_s < 1.2, f"{words} at frame {frame}"
    assert num_read > 0


def test_the_history_holds_what_the_agent_said(conversation: Conversation) -> None:
    items = conversation.report["chat_history"]["items"]
    messages = [item for item in items if item["type"] == "message"]
    assert [message["role"] for message in messages] == ["assistant"]
    (content,) = messages[0]["content"]
    said = conversation.offline.text.lstrip(" ")
    assert said.startswith(content.strip())
    assert len(content) > 0.6 * len(said)
