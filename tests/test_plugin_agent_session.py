"""A real ``AgentSession`` around the plugin, with a fake engine, microphone and loudspeaker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from livekit.agents import Agent, AgentSession, CloseEvent, CloseReason, ErrorEvent, llm
from livekit.agents.metrics import LLMModelUsage

from livekit_personaplex import PersonaPlexModel, PersonaPlexSession
from tests.fake_engine import FakeEngine, Said, silence, words
from tests.fake_room import Captions, Loudspeaker, Microphone
from tests.virtual_time import run_virtual


@dataclass
class Room:
    session: AgentSession[None]
    agent: Agent
    microphone: Microphone
    loudspeaker: Loudspeaker
    captions: Captions
    agent_states: list[str] = field(default_factory=list)
    user_states: list[str] = field(default_factory=list)
    errors: list[ErrorEvent] = field(default_factory=list)
    closes: list[CloseEvent] = field(default_factory=list)

    @property
    def messages(self) -> list[str]:
        return [
            item.text_content or ""
            for item in self.session.history.items
            if item.type == "message" and item.role == "assistant"
        ]


@contextlib.asynccontextmanager
async def room_with(
    model: PersonaPlexModel, agent: Agent | None = None, *, microphone: Microphone | None = None
) -> AsyncIterator[Room]:
    session = AgentSession[None](
        llm=model,
        turn_handling={"turn_detection": "realtime_llm"},
        vad=None,
        aec_warmup_duration=None,
        user_away_timeout=None,
    )
    room = Room(
        session,
        agent or Agent(instructions="You are Ann."),
        microphone or Microphone(),
        Loudspeaker(),
        Captions(),
    )
    session.input.audio = room.microphone
    session.output.audio = room.loudspeaker
    session.output.transcription = room.captions
    session.on("agent_state_changed", lambda ev: room.agent_states.append(ev.new_state))
    session.on("user_state_changed", lambda ev: room.user_states.append(ev.new_state))
    session.on("error", room.errors.append)
    session.on("close", room.closes.append)
    try:
        await session.start(room.agent)
        yield room
    finally:
        await session.aclose()


def model_of(engine: FakeEngine, **options: object) -> PersonaPlexModel:
    return PersonaPlexModel(engine=str(engine.address), **options)  # type: ignore[arg-type]


def test_a_conversation_is_heard_read_and_remembered(tmp_path: Path) -> None:
    script = [
        *silence(6),
        *words("Hello, this is Ann speaking."),
        *silence(20),
        Said(rms=0.1),  # a breath before the first word
        Said(rms=0.1),
        *words("How can I help you today?"),
        *silence(20),
        *words("Goodbye then."),
        *silence(20),
    ]

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(14.0)
                expected = [
                    "Hello, this is Ann speaking.",
                    "How can I help you today?",
                    "Goodbye then.",
                ]
                assert room.captions.texts == expected
                assert room.messages == expected
                assert [u.gaps_s for u in room.loudspeaker.utterances] == [0.0, 0.0, 0.0]
                assert room.agent_states == ["listening"] + ["speaking", "listening"] * 3
                assert room.errors == []
            assert engine.used == 0
            assert room.closes[0].reason == CloseReason.USER_INITIATED

    run_virtual(scenario())


def test_a_long_monologue_is_one_message_in_order(tmp_path: Path) -> None:
    text = " ".join(f"word{n}" for n in range(200))

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words(text)) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(70.0)
                assert room.captions.texts == [text]
                assert room.messages == [text]
                assert room.loudspeaker.utterances[0].gaps_s == 0.0

    run_virtual(scenario())


def test_what_jitter_the_engine_has_is_not_heard(tmp_path: Path) -> None:
    script = silence(3) + words("one two three four five six seven eight") + silence(20)

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script, jitter_s=0.035) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(5.0)
                assert room.loudspeaker.utterances[0].gaps_s == 0.0
            async with room_with(model_of(engine, output_prebuffer_ms=0)) as room:
                await asyncio.sleep(5.0)
                assert room.loudspeaker.utterances[0].gaps_s > 0.0

    run_virtual(scenario())


def test_words_after_a_long_gap_in_the_engine_stay_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        text = "one two three four five six seven eight nine ten"
        async with FakeEngine(tmp_path, script=words(text)) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(1.0)
                engine.is_deaf = True
                await asyncio.sleep(1.5)
                engine.is_deaf = False
                await asyncio.sleep(6.0)
                assert len(room.messages) == 2
                heard = " ".join(room.messages).split()
                assert heard == [word for word in text.split() if word in heard]
                assert heard[0] == "one" and heard[-1] == "ten"

    run_virtual(scenario())


def test_the_caller_may_be_muted_and_the_agent_goes_on(tmp_path: Path) -> None:
    script = silence(10) + words("one two three four five six seven eight nine ten") + silence(40)

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(1.5)
                room.microphone.turn(on=False)
                await asyncio.sleep(5.0)
                room.microphone.turn(on=True)
                await asyncio.sleep(2.0)
                assert room.messages == ["one two three four five six seven eight nine ten"]
                assert room.loudspeaker.utterances[0].gaps_s == 0.0
                session = room.agent.duplex_session
                assert isinstance(session, PersonaPlexSession)
                assert session.stats.silence_frames == pytest.approx(5.0 / 0.08, abs=2)
                assert session.stats.dropped_ms == 0.0

    run_virtual(scenario())


def test_the_callers_state_follows_their_speech(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(1.0)
                room.microphone.level = 3_000
                await asyncio.sleep(1.0)
                room.microphone.level = 0
                await asyncio.sleep(2.0)
                assert room.user_states == ["speaking", "listening"]

    run_virtual(scenario())


def test_an_engine_that_dies_ends_the_call_with_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("one two three")) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(1.0)
                engine.kill()
                await asyncio.sleep(2.0)
                assert len(room.errors) == 1
                assert [event.reason for event in room.closes] == [CloseReason.ERROR]

    run_virtual(scenario())


def test_a_full_engine_makes_the_start_fail(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, slots=1) as engine:
            model = model_of(engine)
            async with room_with(model):
                with pytest.raises(llm.RealtimeError, match="all 1 slots are taken"):
                    async with room_with(model):
                        pass
            async with room_with(model):
                pass

    run_virtual(scenario())


def test_an_agent_with_tools_is_refused_at_the_start(tmp_path: Path) -> None:
    @llm.function_tool
    async def look_up(name: str) -> str:
        """Look something up."""
        return name

    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            agent = Agent(instructions="You are Ann.", tools=[look_up])
            with pytest.raises(llm.RealtimeError, match="cannot call tools"):
                async with room_with(model_of(engine), agent):
                    pass
            assert engine.used == 0

    run_virtual(scenario())


def test_instructions_changed_in_mid_call_are_refused_and_the_call_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=silence(20) + words("still here")) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(0.5)
                with pytest.raises(llm.RealtimeError, match="keeps it"):
                    await room.agent.update_instructions("You are Bob.")
                await asyncio.sleep(4.0)
                assert room.messages == ["still here"]

    run_virtual(scenario())


def test_an_agent_may_hand_over_to_another_even_with_one_slot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, slots=1, script=silence(5) + words("hello")) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(3.0)
                room.session.update_agent(Agent(instructions="You are Bob."))
                await asyncio.sleep(3.0)
                personas = [c.request.persona for c in engine.conversations]
                assert personas == ["You are Ann.", "You are Bob."]
                assert room.messages == ["hello", "hello"]
                assert engine.used == 1

    run_virtual(scenario())


def test_a_session_without_a_room_is_heard_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("hello")) as engine:
            model = model_of(engine, auto_arm=False)
            async with room_with(model) as room:
                assert await model.arm_when_heard(room.session, timeout_s=1.0)
                await asyncio.sleep(3.0)
                assert room.messages == ["hello"]

    run_virtual(scenario())


def test_usage_reaches_the_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("hello")) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(30.0)
            usage = room.session.usage.model_usage
            assert len(usage) == 1
            assert isinstance(usage[0], LLMModelUsage)
            assert usage[0].provider == "nvidia"
            assert usage[0].session_duration == pytest.approx(30.0, abs=0.5)

    run_virtual(scenario())
