"""The sound of the agent on its way to LiveKit: nothing but what the model gives, and no clicks."""

import asyncio

import numpy as np
import pytest
from livekit.agents import llm
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.plugin.fades import FADE_IN_SAMPLES
from livekit_personaplex.plugin.gate import TagGate
from livekit_personaplex.plugin.speaker import Speaker
from livekit_personaplex.wire.protocol import AgentFrame
from tests.clicks import sharpest
from tests.rooms.speech import read_question
from tests.virtual_time import run_virtual

PAD, WORD = 3, 100
QUIET_FRAMES = 15
MIN_SILENCE_MS = 800
SPEECH_WORDS = (*range(17, 38, 4), *range(57, 88, 4))
"""Frames of `speech` at which a word begins."""


def framed(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    return samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)


def sine(*, level: float, num_frames: int = 60) -> NDArray[np.int16]:
    """A tone of 337 Hz, whose frames begin anywhere in the wave, between two quiet stretches."""
    gain = np.full(num_frames * FRAME_SAMPLES, 0.005)  # the model's silence: -46 dB
    loud = slice(QUIET_FRAMES * FRAME_SAMPLES, -QUIET_FRAMES * FRAME_SAMPLES)
    gain[loud] = level
    gain = np.convolve(gain, np.hanning(481) / np.hanning(481).sum(), mode="same")
    wave = np.sin(np.arange(len(gain)) * 2 * np.pi * 337 / SAMPLE_RATE_HZ + 1.0)
    return np.rint(gain * wave * 32767).astype(np.int16)


def speech() -> NDArray[np.int16]:
    """Two questions with a pause between them, in a room that hums."""
    room = 80 * np.sin(np.arange(SAMPLE_RATE_HZ) * 2 * np.pi * 97 / SAMPLE_RATE_HZ)
    pause = np.zeros(QUIET_FRAMES * FRAME_SAMPLES, dtype=np.int16)
    said = [pause, read_question("late_fee"), pause, read_question("opening_hours"), pause]
    clean = np.concatenate(said)
    return np.clip(clean + np.resize(room, len(clean)), -32768, 32767).astype(np.int16)


async def play(
    frames: NDArray[np.int16], *, words_at: tuple[int, ...]
) -> tuple[NDArray[np.int16], list[tuple[int, int]]]:
    """What is played of a model's frames, zero elsewhere, and from where to where."""
    played = np.zeros_like(frames)
    gate = TagGate()
    stretches: list[tuple[int, int]] = []

    def take(audio: llm.DuplexAudioFrame) -> None:
        assert audio.start_ms is not None
        index = audio.start_ms // 80
        if gate.update(audio.frame):
            played[index] = np.frombuffer(audio.frame.data, dtype=np.int16)
            if stretches and stretches[-1][1] == index:
                stretches[-1] = (stretches[-1][0], index + 1)
            else:
                stretches.append((index, index + 1))

    speaker = Speaker(
        say=lambda delta: None,
        play=take,
        loop=asyncio.get_running_loop(),
        min_silence_ms=MIN_SILENCE_MS,
        prebuffer_ms=40,
    )
    for step, pcm in enumerate(frames):
        await asyncio.sleep(0.08)
        token = WORD if step in words_at else PAD
        speaker.speak(AgentFrame(step, pcm.tobytes(), "", (token, *range(8)), None))
    await asyncio.sleep(0.08)
    speaker.close()
    return played, stretches


@pytest.mark.parametrize("level", [0.1, 0.999], ids=["ordinary", "full scale"])
def test_a_tone_is_played_as_it_is_and_begins_and_ends_without_a_click(level: float) -> None:
    frames = framed(sine(level=level))
    played, [(first, end)] = run_virtual(play(frames, words_at=(20, 30, 40)))
    assert sharpest(played.reshape(-1), frames.reshape(-1))[0] < 1.5
    assert (end - first) * 80 == pytest.approx(30 * 80 + MIN_SILENCE_MS, abs=160)
    inside = slice(first * FRAME_SAMPLES + FADE_IN_SAMPLES, (end - 1) * FRAME_SAMPLES)
    assert np.array_equal(played.reshape(-1)[inside], frames.reshape(-1)[inside])


def test_speech_is_played_as_it_is_and_begins_and_ends_without_a_click() -> None:
    frames = framed(speech())
    played, stretches = run_virtual(play(frames, words_at=SPEECH_WORDS))
    assert len(stretches) == 2
    assert sharpest(played.reshape(-1), frames.reshape(-1))[0] < 1.5
    for first, end in stretches:
        inside = slice(first * FRAME_SAMPLES + FADE_IN_SAMPLES, (end - 1) * FRAME_SAMPLES)
        assert np.array_equal(played.reshape(-1)[inside], frames.reshape(-1)[inside])


def test_a_word_opens_the_gate_in_the_middle_of_a_wave_without_a_click() -> None:
    frames = framed(sine(level=0.005))
    played, stretches = run_virtual(play(frames, words_at=(7, 30)))
    assert [first for first, _ in stretches] == [7, 30]
    assert sharpest(played.reshape(-1), frames.reshape(-1))[0] < 1.5


def test_who_speaks_again_just_as_the_gate_closes_goes_on_in_one_stretch() -> None:
    frames = framed(sine(level=0.005))
    played, stretches = run_virtual(play(frames, words_at=(10, 21)))
    assert [first for first, _ in stretches] == [10]
    assert sharpest(played.reshape(-1), frames.reshape(-1))[0] < 1.5
