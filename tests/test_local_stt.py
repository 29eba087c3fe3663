"""The recogniser that runs here: off the event loop, in order, bounded, and gone when closed."""

import asyncio
import io
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
from livekit import rtc
from livekit.agents import stt
from numpy.typing import NDArray

from livekit_personaplex import ConfigError, LocalSTT, PersonaPlexError, recognizer
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.plugin import local_stt
from livekit_personaplex.plugin.waiting_audio import WaitingAudio
from livekit_personaplex.recognizer import RATE_HZ, Reading, find_model, pack_piece, recognize
from livekit_personaplex.settings import local_captions_wanted

SPEECH = Path(__file__).parent / "data" / "speech"
EVENT = stt.SpeechEventType
MAX_STALL_S = 0.05
FASTER = 4
"""Times real time at which a stream is given its audio."""

needs_package = pytest.mark.skipif(
    recognizer.find_spec("moonshine_voice") is None, reason="moonshine-voice is not installed"
)


def speech(*names: str) -> NDArray[np.int16]:
    """Recordings at 24 kHz with a second of silence before, between and after them."""
    pieces = [np.zeros(SAMPLE_RATE_HZ, dtype=np.int16)]
    for name in names:
        samples, rate_hz = soundfile.read(SPEECH / f"{name}.wav", dtype="int16")
        assert rate_hz == SAMPLE_RATE_HZ
        pieces += [samples, np.zeros(SAMPLE_RATE_HZ, dtype=np.int16)]
    return np.concatenate(pieces)


async def give(
    stream: stt.RecognizeStream, samples: NDArray[np.int16], *, faster: int = FASTER
) -> None:
    for begin in range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        piece = samples[begin : begin + FRAME_SAMPLES].tobytes()
        stream.push_frame(rtc.AudioFrame(piece, SAMPLE_RATE_HZ, 1, FRAME_SAMPLES))
        await asyncio.sleep(0.08 / faster)


@asynccontextmanager
async def collecting(stream: stt.RecognizeStream) -> AsyncIterator[list[stt.SpeechEvent]]:
    """Every event of a stream; its end is waited for."""
    events: list[stt.SpeechEvent] = []

    async def collect() -> None:
        async for event in stream:
            events.append(event)

    task = asyncio.create_task(collect())
    try:
        yield events
        await asyncio.wait_for(task, 10.0)
    finally:
        task.cancel()
        await stream.aclose()


async def until_read(events: list[stt.SpeechEvent]) -> None:
    for _ in range(250):
        if texts(events, EVENT.FINAL_TRANSCRIPT):
            return
        await asyncio.sleep(0.02)


async def longest_stall_s(until: asyncio.Event) -> float:
    """How long the event loop did not get round to this task, at worst."""
    worst_s, interval_s = 0.0, 0.002
    while not until.is_set():
        before_s = time.perf_counter()
        await asyncio.sleep(interval_s)
        worst_s = max(worst_s, time.perf_counter() - before_s - interval_s)
    return worst_s


def texts(events: list[stt.SpeechEvent], kind: stt.SpeechEventType) -> list[str]:
    return [event.alternatives[0].text for event in events if event.type is kind]


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


@needs_package
def test_it_reads_what_is_said_in_order_while_the_event_loop_runs_on() -> None:
    async def scenario() -> None:
        stream = LocalSTT().stream()
        is_over = asyncio.Event()
        watching = asyncio.create_task(longest_stall_s(is_over))
        async with collecting(stream) as events:
            await give(stream, speech("late_fee", "opening_hours"), faster=1)
            stream.end_input()
        is_over.set()
        stall_s = await watching
        first, second = texts(events, EVENT.FINAL_TRANSCRIPT)
        assert words(first) == {"how", "much", "is", "the", "late", "fee"}
        assert {"hello", "opening", "hours", "today"} <= words(second)
        assert texts(events, EVENT.INTERIM_TRANSCRIPT)
        kinds = [e.type for e in events if e.type is not EVENT.INTERIM_TRANSCRIPT]
        turn = [EVENT.START_OF_SPEECH, EVENT.FINAL_TRANSCRIPT, EVENT.END_OF_SPEECH]
        assert kinds == [*turn, EVENT.RECOGNITION_USAGE] * 2
        assert stall_s < MAX_STALL_S

    asyncio.run(scenario())


@needs_package
def test_a_turn_begins_when_its_first_sound_was_heard() -> None:
    async def scenario() -> None:
        stream = LocalSTT().stream()
        async with collecting(stream) as events:
            begin_s = time.time()
            await give(stream, speech("late_fee"), faster=1)
            stream.end_input()
        (start,) = [event for event in events if event.type is EVENT.START_OF_SPEECH]
        assert start.speech_start_time is not None
        assert begin_s + 0.5 < start.speech_start_time < begin_s + 2.0

    asyncio.run(scenario())


@needs_package
def test_a_flush_makes_final_what_was_heard_in_the_middle_of_a_sentence() -> None:
    async def scenario() -> None:
        stream = LocalSTT().stream()
        samples = speech("opening_hours")
        async with collecting(stream) as events:
            await give(stream, samples[: 3 * SAMPLE_RATE_HZ])
            stream.flush()
            await until_read(events)
            (final,) = texts(events, EVENT.FINAL_TRANSCRIPT)
            assert "hello" in words(final)
            stream.end_input()

    asyncio.run(scenario())


@needs_package
def test_a_stream_that_is_closed_leaves_no_process_behind() -> None:
    async def scenario() -> None:
        others = set(psutil.Process().children())
        stream = LocalSTT().stream()
        await give(stream, speech("late_fee")[: 2 * SAMPLE_RATE_HZ])
        (child,) = set(psutil.Process().children()) - others
        await stream.aclose()
        assert not child.is_running()

    asyncio.run(scenario())


@needs_package
def test_a_recogniser_that_dies_is_an_error_of_its_stream() -> None:
    async def scenario() -> None:
        others = set(psutil.Process().children())  # of other tests, which may last
        stream = LocalSTT().stream()
        await give(stream, speech("late_fee")[:SAMPLE_RATE_HZ])
        (child,) = set(psutil.Process().children()) - others
        child.kill()
        await give(stream, speech("late_fee")[:FRAME_SAMPLES])
        with pytest.raises(PersonaPlexError, match="ended with status -9"):
            await anext(stream)
        await stream.aclose()

    asyncio.run(scenario())


@needs_package
def test_a_recogniser_that_hangs_is_ended_and_an_error_of_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_stt, "ANSWER_TIMEOUT_S", 1.0)

    async def scenario() -> None:
        others = set(psutil.Process().children())
        stream = LocalSTT().stream()
        await give(stream, speech("late_fee")[:FRAME_SAMPLES])
        (child,) = set(psutil.Process().children()) - others
        child.suspend()
        await give(stream, speech("late_fee")[:SAMPLE_RATE_HZ])
        with pytest.raises(PersonaPlexError, match="gave no answer for 1 s"):
            await asyncio.wait_for(anext(stream), 20.0)
        assert not child.is_running()
        await stream.aclose()

    asyncio.run(scenario())


@needs_package
def test_a_process_reads_a_call_stretch_by_stretch_each_once() -> None:
    pause = np.zeros(3 * SAMPLE_RATE_HZ, dtype=np.int16)
    call = np.concatenate([speech("late_fee"), pause] * 3)
    resampler = rtc.AudioResampler(SAMPLE_RATE_HZ, RATE_HZ)
    frames = resampler.push(bytearray(call.tobytes())) + resampler.flush()
    answers = io.BytesIO()
    recognize(io.BytesIO(b"".join(pack_piece(bytes(frame.data)) for frame in frames)), answers)
    lines = answers.getvalue().decode().splitlines()
    assert lines.count("") == len(frames)
    finals = [reading for reading in map(Reading.parse, filter(None, lines)) if reading.is_final]
    assert [words(reading.text) for reading in finals] == [words(finals[0].text)] * 3
    assert len({reading.stretch for reading in finals}) == 3


def test_what_cannot_be_read_in_time_is_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    second = bytes(2 * RATE_HZ)

    async def scenario() -> None:
        waiting = WaitingAudio(RATE_HZ, max_waiting_s=2.0)
        for _ in range(10):  # nobody reads
            waiting.push(second)
        assert (waiting.left_out_s, waiting.duration_s) == (9.0, 1.0)
        waiting.flush()
        waiting.finish()
        pieces = [await waiting.take() for _ in range(4)]
        assert pieces == [second[: len(second) // 2]] * 2 + [b"", None]

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognizer, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'livekit-personaplex\[captions\]'"):
        LocalSTT()


def test_a_package_without_its_model_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Spec:
        submodule_search_locations = [str(tmp_path)]

    monkeypatch.setattr(recognizer, "find_spec", lambda name: Spec)
    with pytest.raises(ConfigError, match="came without its English model"):
        find_model()


def test_the_environment_asks_for_it_by_name() -> None:
    assert not local_captions_wanted({})
    assert local_captions_wanted({"PERSONAPLEX_CAPTIONS": "local"})
    with pytest.raises(ConfigError, match="must be local, or not set, got 'whisper'"):
        local_captions_wanted({"PERSONAPLEX_CAPTIONS": "whisper"})
