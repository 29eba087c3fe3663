"""What a caller hears of a model that says known sounds: through the plugin and a real room.

The engine is a fake that says them; model and caller are in this process, as two participants.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from livekit import api, rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.voice import room_io
from numpy.typing import NDArray

from livekit_personaplex import PersonaPlexModel
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from tests.fake_engine import PAD, WORD, FakeEngine, Said
from tests.rooms.hearing import find_parts
from tests.test_plugin_speaker import QUIET_FRAMES, SPEECH_WORDS, framed, sine, speech

pytestmark = pytest.mark.room

ROOM = room_io.RoomOptions(
    text_input=False, audio_output=room_io.AudioOutputOptions(sample_rate=SAMPLE_RATE_HZ)
)
PERSONA = "You enjoy having a good conversation. Your name is Ann."
HEAD_START_MS = 400
"""More than usual: what is measured are joins, not how late a busy machine can be."""
LEVEL, PITCH_HZ = 0.3, 337
SHARPEST = LEVEL * 32767 * (2 * np.pi * PITCH_HZ / SAMPLE_RATE_HZ) ** 2
"""How sharply the tone itself bends, as a second difference."""


async def hear(
    livekit: LiveKitCredentials,
    sound: NDArray[np.int16],
    *,
    room: str,
    folder: Path,
    words_at: Collection[int],
) -> NDArray[np.int16]:
    """Let a model say a sound; return all that the caller heard until 1.5 s after it."""
    script = [
        Said(pcm=pcm.tobytes(), token=WORD if index in words_at else PAD)
        for index, pcm in enumerate(framed(sound))
    ]
    grants = api.VideoGrants(room_join=True, room=room)
    token = api.AccessToken(livekit.api_key, livekit.api_secret).with_identity("agent")
    agent_room = rtc.Room()
    async with FakeEngine(folder, script=script) as engine:
        caller = await Caller.join(livekit, room=room)
        await caller.publish()
        await agent_room.connect(livekit.url, token.with_grants(grants).to_jwt())
        model = PersonaPlexModel(
            engine=str(engine.address), auto_arm=False, output_prebuffer_ms=HEAD_START_MS
        )
        session: AgentSession[None] = AgentSession(
            llm=model,
            turn_handling={"turn_detection": "realtime_llm"},
            vad=None,
            aec_warmup_duration=None,
            user_away_timeout=None,
        )
        agent = Agent(instructions=PERSONA)
        await session.start(agent, room=agent_room, room_options=ROOM, session_host=False)
        assert await model.arm_when_heard(session, timeout_s=20.0)
        await asyncio.sleep(len(script) * FRAME_S + 1.5)
        heard = caller.heard.samples
        await session.aclose()
        await agent_room.disconnect()
        await caller.leave()
    return heard


def bends(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    return np.abs(np.diff(samples.astype(np.float64), n=2))


def test_a_tone_is_heard_without_gaps_and_without_clicks(
    livekit: LiveKitCredentials, tmp_path: Path
) -> None:
    tone = sine(level=LEVEL, num_frames=75)
    words = range(QUIET_FRAMES + 3, 60, 10)
    heard = asyncio.run(hear(livekit, tone, room="tone", folder=tmp_path, words_at=words))
    pieces = heard[: len(heard) // 240 * 240].reshape(-1, 240).astype(np.float64)
    levels = np.sqrt(np.mean(np.square(pieces), axis=1))
    loud = np.flatnonzero(levels > LEVEL / np.sqrt(2) * 32767 / 2)
    first, last = loud[0] + 2, loud[-1] - 2
    assert (last - first) * 0.01 == pytest.approx(45 * FRAME_S, abs=0.2)
    assert levels[first:last].min() > 0.7 * np.median(levels[first:last])
    # its joins of 80 ms, LiveKit's of 50 and 30, its beginning and its end
    assert bends(heard).max() < 2.5 * SHARPEST


def test_speech_is_heard_whole_and_bends_at_joins_no_more_than_anywhere(
    livekit: LiveKitCredentials, tmp_path: Path
) -> None:
    sound = speech()
    heard = asyncio.run(hear(livekit, sound, room="speech", folder=tmp_path, words_at=SPEECH_WORDS))
    shifts = find_parts(sound, heard)
    found = [shift for shift in shifts if shift is not None]
    assert len(found) >= len(shifts) - 1
    # in each stretch, for the head start of the second need not be that of the first
    first = (QUIET_FRAMES + 4) * FRAME_SAMPLES
    length = 16 * FRAME_SAMPLES
    begin = find(sound[first : first + length], heard).sample
    said, played = bends(sound[first : first + length]), bends(heard[begin : begin + length])
    offsets = np.arange(len(said)) % FRAME_SAMPLES
    is_join = (offsets < 24) | (offsets >= FRAME_SAMPLES - 24)
    at_joins = played[is_join].mean() / said[is_join].mean()
    elsewhere = played[~is_join].mean() / said[~is_join].mean()
    assert at_joins < 1.5 * elsewhere
