"""Greeting, the first word, given words, and watchdogs, in a real ``AgentSession``."""

import asyncio
from pathlib import Path

import pytest
from livekit.agents import llm

from livekit_personaplex import (
    AgentSilentEvent,
    AgentSpeakingEvent,
    CallerUnheardEvent,
    ConfigError,
    PersonaPlexModel,
    PersonaPlexSession,
    Watchdogs,
)
from livekit_personaplex.errors import EngineError
from tests.fake_engine import FakeEngine, silence, words
from tests.test_plugin_agent_session import Room, model_of, room_with
from tests.virtual_time import run_virtual

LOUD = 3_000


def duplex(room: Room) -> PersonaPlexSession:
    session = room.agent.duplex_session
    assert isinstance(session, PersonaPlexSession)
    return session


def test_a_greeting_is_the_first_thing_heard_and_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = silence(40) + words("And then my own.") + silence(20)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine, greeting="Hello, this is Ann.")) as room:
                await asyncio.sleep(7.0)
                assert engine.last.request.greeting == "Hello, this is Ann."
                assert room.messages == ["Hello, this is Ann.", "And then my own."]
                assert room.captions.texts == room.messages

    run_virtual(scenario())


def test_words_given_in_mid_call_are_heard_read_and_remembered(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = silence(5) + words("One moment please.") + silence(20)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(4.0)
                first = duplex(room).say_text("Your table is ready.")
                second = duplex(room).say_text("Goodbye.")
                await asyncio.sleep(0.1)
                assert not first.done()
                assert await first and await second
                await asyncio.sleep(2.0)
                said = "Your table is ready. Goodbye."
                assert room.messages == ["One moment please.", said]
                assert [u.gaps_s for u in room.loudspeaker.utterances] == [0.0, 0.0]
                assert room.errors == []

    run_virtual(scenario())


def test_words_that_cannot_be_said_leave_the_call_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = silence(30) + words("still here")
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine)) as room:
                session = duplex(room)
                with pytest.raises(ConfigError, match="needs words"):
                    duplex(room).say_text(" \n")
                with pytest.raises(ConfigError, match="4096 bytes of UTF-8, got 5000"):
                    duplex(room).say_text("x" * 5000)
                refused = duplex(room).say_text("unspeakable")
                with pytest.raises(ConfigError, match="it cannot be said"):
                    await refused
                duplex(room).say_text("unspeakable")  # nobody waits for this one
                await asyncio.sleep(5.0)
                assert room.messages == ["still here"]
                assert room.errors == []
            with pytest.raises(EngineError):
                session.say_text("too late")

    run_virtual(scenario())


def test_words_may_be_taken_back_and_end_with_the_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine)) as room:
                session = duplex(room)
                saying = session.say_text(" ".join(["word"] * 50))
                await asyncio.sleep(2.0)
                session.stop_saying()
                assert not await saying
                last = session.say_text("more")
            assert not await last

    run_virtual(scenario())


def test_generate_reply_lets_the_agent_begin_but_takes_no_instructions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine)) as room:
                await asyncio.sleep(1.0)
                told = room.session.generate_reply(instructions="Say hello.")
                await told
                error = told.exception()
                assert isinstance(error, llm.RealtimeError) and "say_text" in str(error)
                assert engine.last.texts == []
                reply = room.session.generate_reply()
                await reply
                assert engine.last.texts == [""]
                await asyncio.sleep(2.0)
                assert room.messages == ["Words of my own."]

    run_virtual(scenario())


@pytest.mark.parametrize("greeting", ["", "Hello, this is Ann."])
def test_the_caller_may_have_the_first_word(tmp_path: Path, greeting: str) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("one two three " * 50)) as engine:
            model = model_of(engine, first_speaker="caller", greeting=greeting)
            async with room_with(model) as room:
                await asyncio.sleep(3.0)
                assert engine.last.is_held and room.messages == []
                room.microphone.level = LOUD
                await asyncio.sleep(1.0)
                assert engine.last.is_held == (greeting != ""), "a greeting waits for its turn"
                room.microphone.level = 0
                await asyncio.sleep(1.0)
                assert not engine.last.is_held
                assert engine.last.released_at_frame is not None
                released_s = engine.last.released_at_frame * 0.08
                assert released_s == pytest.approx(4.7 if greeting else 3.2, abs=0.2)

    run_virtual(scenario())


def test_a_caller_who_says_nothing_is_spoken_to_after_a_while(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=silence(90) + words("Anyone there?")) as engine:
            model = model_of(engine, first_speaker="caller", caller_first_timeout_s=4.0)
            async with room_with(model) as room:
                await asyncio.sleep(12.0)
                assert engine.last.released_at_frame in (49, 50)
                assert room.messages == ["Anyone there?"]

    run_virtual(scenario())


def test_words_given_to_an_agent_that_waits_for_the_caller_are_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            model = model_of(engine, first_speaker="caller", greeting="Hello.")
            async with room_with(model) as room:
                await asyncio.sleep(2.0)
                assert engine.last.is_held
                assert await duplex(room).say_text("Sorry, one moment.")
                await asyncio.sleep(1.5)
                assert room.messages == ["Hello. Sorry, one moment."]

    run_virtual(scenario())


def test_job_metadata_may_ask_for_a_greeting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            model = model_of(engine, greeting="Hello.")
            call = model.for_call('{"greeting": "Hi, Zoë.", "first_speaker": "agent"}')
            async with room_with(call):
                assert engine.last.request.greeting == "Hi, Zoë."
                assert engine.last.request.first_speaker == "agent"

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"greeting": 3}, "greeting must be text"),
        ({"greeting": "x" * 5000}, "4096 bytes"),
        ({"greeting": "\ud800"}, "surrogate"),
        ({"first_speaker": "dog"}, "model, agent, caller"),
        ({"caller_first_timeout_s": 0.0}, "caller_first_timeout_s must be above 0"),
        ({"user_stt": "whisper"}, "LiveKit STT"),
        ({"watchdogs": 5}, "must be Watchdogs"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PersonaPlexModel(**options)  # type: ignore[arg-type]


def test_watchdogs_tell_the_application(tmp_path: Path) -> None:
    limits = Watchdogs(agent_silent_s=3.0, agent_speaking_s=4.0, caller_unheard_s=2.0)
    told: list[object] = []

    async def scenario() -> None:
        script = silence(75) + words("on and on and on " * 8) + silence(20)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine, watchdogs=limits)) as room:
                session = duplex(room)
                for name in ("agent_silent", "agent_speaking", "caller_unheard"):
                    session.on(f"personaplex_{name}", told.append)  # type: ignore[arg-type]
                room.microphone.level = LOUD
                await asyncio.sleep(5.0)
                (silent,) = told
                assert isinstance(silent, AgentSilentEvent)
                room.microphone.level = 0
                await asyncio.sleep(3.0)
                assert isinstance(told[1], CallerUnheardEvent) and told[1].reason == "silence"
                await asyncio.sleep(5.0)
                assert isinstance(told[2], AgentSpeakingEvent)
                room.microphone.level = LOUD
                await asyncio.sleep(0.5)
                room.microphone.turn(on=False)
                await asyncio.sleep(3.0)
                assert isinstance(told[3], CallerUnheardEvent) and told[3].reason == "no_audio"
                assert len(told) == 4 and room.errors == []

    run_virtual(scenario())


def test_a_persona_is_looked_at_once_a_call_without_its_text_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine, persona="# Rules for Xylophonia")):
                pass
            async with room_with(model_of(engine, persona="You enjoy having a good conversation.")):
                pass

    run_virtual(scenario())
    (record,) = [record for record in caplog.records if "persona" in record.getMessage()]
    assert record.remarks == ["untrained_form", "not_second_person", "markup"]  # type: ignore[attr-defined]
    assert "Xylophonia" not in caplog.text
