"""The examples in real rooms, run as they are; that for the telephone has tests of its own."""

import asyncio
import json
from pathlib import Path

import pytest
from livekit import api

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import rms
from livekit_personaplex.wire.address import EngineAddress
from tests.rooms.hearing import PART_SAMPLES
from tests.rooms.replay import RecordedCall
from tests.rooms.speech import read_question
from tests.rooms.worker import PROJECT, run_worker, until

pytestmark = pytest.mark.room

EXAMPLES = PROJECT / "examples"
AGENT_WITH_CAPTIONS = PROJECT / "tests" / "rooms" / "agent_with_captions.py"
DISPATCH = {"voice": "TINY0", "greedy": True}
DUET_S = 6.0
QUESTION = set("hello what are your opening hours today".split())


@pytest.fixture
def settings(tiny_engine: EngineAddress) -> dict[str, str]:
    """Of workers that use the one engine, and start none."""
    return {"PERSONAPLEX_ENGINE": str(tiny_engine), "DUET_S": str(DUET_S)}


def test_the_minimal_agent_talks(
    livekit: LiveKitCredentials, settings: dict[str, str], tmp_path: Path
) -> None:
    async def scenario() -> None:
        caller = await Caller.join(livekit, room="minimal", dispatch={}, departure_timeout_s=1)
        try:
            await caller.publish()
            await caller.until(
                lambda: caller.agent_state == "speaking" and rms(caller.heard.samples) > 0.001,
                what="the agent speaks",
                timeout_s=30.0,
            )
        finally:
            await caller.leave()

    agent = EXAMPLES / "minimal_agent.py"
    with run_worker(livekit, tmp_path / "w", slots=2, agent=agent, settings=settings):
        asyncio.run(scenario())


def check_hears(hearer: RecordedCall, speaker: RecordedCall) -> None:
    """Nearly all that one said, but the end, came to the other within a second."""
    said = speaker.audio.agent[: (len(speaker.frames) - 15) * FRAME_SAMPLES]
    parts = said[: len(said) // PART_SAMPLES * PART_SAMPLES].reshape(-1, PART_SAMPLES)
    assert len(parts) >= 5
    num_heard = 0
    for index, part in enumerate(parts):
        match = find(part, hearer.audio.user)
        delay_s = (match.sample - index * PART_SAMPLES) / SAMPLE_RATE_HZ
        num_heard += match.score > 0.3 and 0 < delay_s < 1
    assert num_heard >= 0.7 * len(parts)


def test_two_agents_talk_to_each_other(
    livekit: LiveKitCredentials,
    tiny_engine: EngineAddress,
    settings: dict[str, str],
    tmp_path: Path,
) -> None:
    recordings = Path(tiny_engine.unix_path).parent / "recordings"
    known = set(recordings.glob("*"))

    def new() -> list[Path]:
        return sorted(set(recordings.glob("*.safetensors")) - known)

    async def scenario() -> list[RecordedCall]:
        listener = await Caller.join(livekit, room="duet", identity="listener")
        http = livekit.url.replace("ws://", "http://")
        async with api.LiveKitAPI(http, livekit.api_key, livekit.api_secret) as server:
            for name in ("Ann", "Bob"):
                metadata = DISPATCH | {
                    "persona": f"You enjoy having a good conversation. Your name is {name}."
                }
                await server.agent_dispatch.create_dispatch(
                    api.CreateAgentDispatchRequest(
                        agent_name="personaplex", room="duet", metadata=json.dumps(metadata)
                    )
                )
        try:
            await until(lambda: len(new()) == 2, what="both recordings", timeout_s=60.0)
            assert rms(listener.heard.samples) > 0.001
        finally:
            await listener.leave()
        return [RecordedCall.read(path) for path in new()]

    agent = EXAMPLES / "two_agents.py"
    with run_worker(livekit, tmp_path / "w", slots=2, agent=agent, settings=settings):
        one, other = asyncio.run(scenario())
    assert one.persona != other.persona
    check_hears(one, other)
    check_hears(other, one)


def test_what_the_caller_says_is_read_in_the_room(
    livekit: LiveKitCredentials, settings: dict[str, str], tmp_path: Path
) -> None:
    async def scenario() -> None:
        caller = await Caller.join(
            livekit, room="captions", dispatch=DISPATCH, departure_timeout_s=1
        )

        def read() -> set[str]:
            said = (words.text for words in caller.words if words.identity == caller.identity)
            return set(" ".join(said).split())

        try:
            microphone = await caller.publish()
            await caller.until(
                lambda: caller.agent_state == "speaking", what="the agent speaks", timeout_s=30.0
            )
            microphone.say(read_question("opening_hours"))
            await caller.until(
                lambda: len(read() & QUESTION) >= 3, what="the caller's words", timeout_s=30.0
            )
        finally:
            await caller.leave()

    agent = AGENT_WITH_CAPTIONS
    with run_worker(livekit, tmp_path / "w", slots=2, agent=agent, settings=settings):
        asyncio.run(scenario())
