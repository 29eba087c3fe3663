"""Captions of the caller by an STT beside the model, in a real ``AgentSession``."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from livekit import rtc
from livekit.agents import UserInputTranscribedEvent
from livekit.agents.metrics import STTModelUsage
from numpy.typing import NDArray

from livekit_personaplex import ConfigError, LocalSTT, PersonaPlexModel
from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.plugin.captions import RESTART_PAUSES_S
from tests.fake_engine import FakeEngine, silence, words
from tests.fake_room import Microphone
from tests.fake_stt import FakeSTT, Line
from tests.test_plugin_agent_session import Room, model_of, room_with
from tests.virtual_time import run_virtual

SPEECH = Path(__file__).parent / "data" / "speech"
LINES = (
    Line(0.5, "start"),
    Line(0.8, "interim", "Do you"),
    Line(1.2, "interim", "Do you have a table?"),
    Line(1.6, "final", "Do you have a table?"),
    Line(1.6, "end"),
    Line(1.7, "usage"),
    Line(5.0, "final", "Thank you."),
)


def transcripts_of(room: Room) -> list[UserInputTranscribedEvent]:
    told: list[UserInputTranscribedEvent] = []
    room.session.on("user_input_transcribed", told.append)
    return told


def history(room: Room) -> list[tuple[str, str]]:
    return [
        (item.role, item.text_content or "")
        for item in room.session.history.items
        if item.type == "message" and item.role in ("user", "assistant")
    ]


def test_what_the_caller_says_is_read_as_it_comes_and_remembered_in_order(tmp_path: Path) -> None:
    recognizer = FakeSTT(LINES)

    async def scenario() -> None:
        script = silence(25) + words("Yes, for four.") + silence(60)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine, user_stt=recognizer)) as room:
                told = transcripts_of(room)
                await asyncio.sleep(7.0)
                texts = [(event.transcript, event.is_final) for event in told if event.transcript]
                assert texts == [
                    ("Do you", False),
                    ("Do you have a table?", False),
                    ("Do you have a table?", True),
                    ("Thank you.", True),
                ]
                items = [event.item_id for event in told if event.transcript]
                assert items[0] == items[1] == items[2] != items[3]
                assert history(room) == [
                    ("user", "Do you have a table?"),
                    ("assistant", "Yes, for four."),
                    ("user", "Thank you."),
                ]
                assert room.errors == []
            usage = [u for u in room.session.usage.model_usage if isinstance(u, STTModelUsage)]
            assert [u.audio_duration for u in usage] == [1.5]
        assert recognizer.rates_hz == {24_000}
        assert recognizer.heard_s == pytest.approx(7.0, abs=0.3)

    run_virtual(scenario())


def test_a_turn_is_put_where_it_began(tmp_path: Path) -> None:
    recognizer = FakeSTT([Line(4.0, "final", "Hello there.")])

    async def scenario() -> None:
        script = silence(25) + words("I am talking now.") + silence(60)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine, user_stt=recognizer)) as room:
                before_s = time.time()
                room.microphone.level = 3_000
                await asyncio.sleep(1.0)
                began_s = time.time()
                room.microphone.level = 0
                await asyncio.sleep(6.0)
                (user,) = [
                    item
                    for item in room.session.history.items
                    if item.type == "message" and item.role == "user"
                ]
                assert before_s <= user.created_at <= began_s
                assert user.transcript_confidence == 0.75

    run_virtual(scenario())


def test_an_stt_that_fails_costs_captions_for_a_while_and_nothing_else(tmp_path: Path) -> None:
    recognizer = FakeSTT([Line(0.5, "final", "Hello.")])

    async def scenario() -> None:
        script = silence(60) + words("Still here.") + silence(20)
        async with FakeEngine(tmp_path, script=script) as engine:
            async with room_with(model_of(engine, user_stt=recognizer)) as room:
                told = transcripts_of(room)
                await asyncio.sleep(1.0)
                assert [event.transcript for event in told] == ["Hello."]
                recognizer.failure = RuntimeError("the cable is cut")
                await asyncio.sleep(2.0)
                recognizer.failure = None
                await asyncio.sleep(6.0)
                assert [event.transcript for event in told] == ["Hello.", "Hello."]
                assert [getattr(e.error, "recoverable", None) for e in room.errors] == [True, True]
                assert "the cable is cut" in str(room.errors[0].error.error)  # type: ignore[union-attr]
                assert room.messages == ["Still here."] and room.closes == []
                assert recognizer.num_streams == 3

    run_virtual(scenario())


def test_an_stt_that_never_works_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    recognizer = FakeSTT([])
    recognizer.failure = RuntimeError("no")

    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine, user_stt=recognizer)) as room:
                await asyncio.sleep(sum(RESTART_PAUSES_S) + 5.0)
                assert recognizer.num_streams == len(RESTART_PAUSES_S) + 1
                assert room.closes == []

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("closing_s", "failure"),
    [(60.0, None), (0.0, RuntimeError("no"))],
    ids=["hangs", "fails"],
)
def test_an_stt_that_does_not_end_keeps_no_slot(
    tmp_path: Path, closing_s: float, failure: Exception | None
) -> None:
    recognizer = FakeSTT([])
    recognizer.closing_s, recognizer.closing_failure = closing_s, failure

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with FakeEngine(tmp_path) as engine:
            async with room_with(model_of(engine, user_stt=recognizer)) as room:
                await asyncio.sleep(1.0)
                assert engine.used == 1
                end_s = loop.time()
                await room.session.aclose()
                assert loop.time() - end_s < 3.0
                assert engine.used == 0
            await asyncio.sleep(closing_s + RESTART_PAUSES_S[0] + 1.0)
        assert recognizer.num_streams == 1 and room.errors == []

    run_virtual(scenario())


class Speaker(Microphone):
    """Speaks recordings, each after a second of silence."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        second = np.zeros(SAMPLE_RATE_HZ, dtype=np.int16)
        pieces = [np.concatenate((second, read_speech(name))) for name in names]
        self._samples = np.concatenate((*pieces, second, second))

    async def __anext__(self) -> rtc.AudioFrame:
        silence_frame = await super().__anext__()
        count = silence_frame.samples_per_channel
        piece, self._samples = self._samples[:count], self._samples[count:]
        if len(piece) < count:
            return silence_frame
        return rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, count)


def read_speech(name: str) -> NDArray[np.int16]:
    samples, rate_hz = soundfile.read(SPEECH / f"{name}.wav", dtype="int16")
    assert rate_hz == SAMPLE_RATE_HZ
    return np.asarray(samples)


def test_a_recogniser_that_runs_here_reads_what_callers_say(tmp_path: Path) -> None:
    pytest.importorskip("moonshine_voice")

    async def scenario() -> None:  # in real time: the recogniser has a thread of its own
        script = silence(38) + words("Five.") + silence(60)
        async with FakeEngine(tmp_path, script=script) as engine:
            model = model_of(engine, user_stt=LocalSTT())
            speaker = Speaker("late_fee", "opening_hours")
            async with room_with(model, microphone=speaker) as room:
                told = transcripts_of(room)
                await asyncio.sleep(9.5)
                finals = [event.transcript for event in told if event.is_final]
                assert finals[0] == "How much is the late fee?"
                assert finals[1].startswith("Hello, what are your opening hours")
                assert any(event.transcript and not event.is_final for event in told)
                assert [role for role, _ in history(room)] == ["user", "assistant", "user"]

    asyncio.run(scenario())


def test_an_stt_that_does_not_stream_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"does not; give livekit.agents.stt.StreamAdapter"):
        PersonaPlexModel(user_stt=FakeSTT([], streaming=False))


def test_capabilities_follow_the_stt_also_for_a_call_of_its_own() -> None:
    model = PersonaPlexModel(user_stt=FakeSTT([]))
    assert model.capabilities.user_transcription
    assert model.for_call('{"voice": "NATM1"}').capabilities.user_transcription
    assert not PersonaPlexModel().capabilities.user_transcription
