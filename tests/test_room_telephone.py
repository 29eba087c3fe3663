"""Telephone calls in real rooms, with everything real but LiveKit's bridge: who is rung, who rings,
which keys do what, and that the agent hears a question that came over a telephone's line.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from livekit import rtc

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import rms
from tests.rooms.hearing import find_parts
from tests.rooms.patience import in_real_time
from tests.rooms.replay import RecordedCall
from tests.rooms.speech import read_question
from tests.rooms.telephone import Law, Telephone, over_the_line, ringback
from tests.rooms.worker import PROJECT, RoomWorker, run_worker, until

pytestmark = pytest.mark.room

TELEPHONY_AGENT = PROJECT / "examples" / "telephony_agent.py"
DISPATCH = {"voice": "TINY0", "greedy": True}
MAX_CALL_S = 8.0
RINGS_S = 3.0
GREETING = "hello"


@pytest.fixture(scope="module")
def worker(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoomWorker]:
    settings = {"PHONE_MAX_CALL_S": str(MAX_CALL_S), "PHONE_OPERATOR": "tel:+15105550199"}
    settings |= {"PHONE_TRUNK_ID": "ST_1"}
    folder = tmp_path_factory.mktemp("worker")
    # one slot more than calls: LiveKit hears late that a worker which was full has a free one
    with run_worker(livekit, folder, slots=3, agent=TELEPHONY_AGENT, settings=settings) as running:
        yield running


@asynccontextmanager
async def on_the_phone(
    livekit: LiveKitCredentials, room: str, *, status: str = "active", **metadata: str
) -> AsyncIterator[Telephone]:
    """A telephone in a room of its own, into which the agent is called; hangs up at the end."""
    telephone = await Telephone.connect(
        livekit, room=room, status=status, dispatch=DISPATCH | metadata
    )
    try:
        await telephone.publish()
        yield telephone
    finally:
        await telephone.leave()


async def speaks(telephone: Telephone) -> None:
    await telephone.until(
        lambda: telephone.agent_state == "speaking", what="the agent speaks", timeout_s=30.0
    )


async def all_free(worker: RoomWorker) -> None:
    for _ in range(100):
        if (await worker.stats()).used == 0:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("a slot was not freed")


def test_greeting_and_the_models_time_begin_when_a_rung_telephone_is_answered(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> tuple[RecordedCall, float]:
        known = worker.recordings()
        async with on_the_phone(
            livekit, "outbound", status="dialing", keys="12#", greeting=GREETING
        ) as telephone:
            await telephone.change("ringing")
            telephone.microphone.say(ringback(30.0))
            await telephone.until(
                lambda: bool(telephone.heard.pieces), what="a track", timeout_s=30.0
            )
            await asyncio.sleep(RINGS_S)
            assert telephone.agent_state != "speaking"
            assert rms(telephone.heard.samples) < 1e-4
            assert telephone.keys == ""
            telephone.microphone.hush()
            await telephone.change("active")
            answered_s = time.monotonic()
            await speaks(telephone)
            await telephone.until(lambda: telephone.keys == "12#", what="keys", timeout_s=20.0)
            await telephone.until(
                lambda: "".join(words.text for words in telephone.words).startswith(GREETING),
                what="the greeting",
                timeout_s=20.0,
            )
            assert rms(telephone.heard.samples[-SAMPLE_RATE_HZ // 2 :]) > 0.01
            talked_s = time.monotonic() - answered_s
        return RecordedCall.read(await worker.next_recording(known)), talked_s

    call, talked_s = asyncio.run(scenario())
    assert len(call.frames) * 0.08 == pytest.approx(talked_s, abs=0.6)
    # Of the ringing only what the jitter buffer still held is in the model's past.
    assert rms(call.frames.reshape(-1)[SAMPLE_RATE_HZ // 2 :]) < 1e-3


def test_questions_on_bad_lines_reach_the_model_and_their_callers_hang_up_in_mid_word(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    question = read_question("opening_hours")
    pause = np.zeros(SAMPLE_RATE_HZ // 2, dtype=np.int16)

    async def ask(law: Law) -> None:
        line = over_the_line(np.concatenate([question, pause, question]), law=law, loss=0.03)
        async with on_the_phone(livekit, f"inbound-{law}") as telephone:
            await speaks(telephone)
            telephone.microphone.say(line)
            await asyncio.sleep(len(line) / SAMPLE_RATE_HZ - 0.9)

    async def scenario() -> list[RecordedCall]:
        known = worker.recordings()
        await asyncio.gather(ask("mu"), ask("A"))
        await all_free(worker)
        await until(lambda: len(worker.recordings() - known) == 2, what="two recordings")
        return [RecordedCall.read(path) for path in worker.recordings() - known]

    def attempt() -> None:
        for call in asyncio.run(scenario()):
            heard = call.audio.user
            assert sum(shift is not None for shift in find_parts(question, heard)) >= 5
            # The line went dead in the middle of the second question, and then all was over.
            last_s = (len(heard) - np.flatnonzero(np.abs(heard) > 500)[-1]) / SAMPLE_RATE_HZ
            assert last_s < 1.5

    in_real_time(worker, attempt)


def test_keys_transfer_and_hang_up_and_a_failed_transfer_leaves_the_call_alone(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> None:
        async with on_the_phone(livekit, "keys") as telephone:
            await speaks(telephone)
            await telephone.press("0")  # there is no bridge here that could transfer anybody
            transfers = "could not transfer the call"
            await asyncio.to_thread(worker.process.wait_for, transfers, timeout_s=20.0)
            heard_s = telephone.heard.duration_s
            await telephone.until(
                lambda: telephone.heard.duration_s > heard_s + 0.5, what="more", timeout_s=20.0
            )
            assert telephone.gone is None
            await telephone.press("#")
            await telephone.until_gone(timeout_s=20.0)
            assert telephone.gone == rtc.DisconnectReason.ROOM_DELETED
        await all_free(worker)

    asyncio.run(scenario())


def test_a_call_ends_when_it_has_lasted_too_long(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> float:
        async with on_the_phone(livekit, "long") as telephone:
            await speaks(telephone)
            began_s = time.monotonic()
            await telephone.until_gone(timeout_s=30.0)
            assert telephone.gone == rtc.DisconnectReason.ROOM_DELETED
            return time.monotonic() - began_s

    assert asyncio.run(scenario()) == pytest.approx(MAX_CALL_S, abs=1.5)


@pytest.mark.parametrize(
    "metadata", [{"dial": "+15105550123"}, {"voice": "UNKNOWN"}], ids=["no bridge", "no such voice"]
)
def test_a_call_that_cannot_be_served_is_hung_up(
    livekit: LiveKitCredentials, worker: RoomWorker, metadata: dict[str, str]
) -> None:
    async def scenario() -> None:
        room = f"unserved-{'-'.join(metadata)}"
        async with on_the_phone(livekit, room, status="ringing", **metadata) as telephone:
            await telephone.until_gone(timeout_s=30.0)
            assert telephone.gone == rtc.DisconnectReason.ROOM_DELETED
        await all_free(worker)

    asyncio.run(scenario())
