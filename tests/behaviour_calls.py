"""Callers of the behaviour tests: recorded once from a text to speech (data/README.md)."""

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from examples.demo_model.measuring.exam import Asked
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from tests.conformance import DATA

FOLDER = DATA / "behaviour"


@dataclass(frozen=True)
class Call:
    """A caller who asks, whatever he hears.

    Attributes:
        name: ``trained`` or ``held``: whether its words are those of the training.
        persona: Of the agent.
        caller: Whole frames of int16.
        asked: Its questions.
        murmur: A "mhm" of the same voice.
        interruption: A question that begins plainly.
    """

    name: str
    persona: str
    caller: NDArray[np.int16]
    asked: list[Asked]
    murmur: NDArray[np.int16]
    interruption: NDArray[np.int16]


@functools.cache
def tape() -> NDArray[np.int16]:
    """All utterances, one after another."""
    samples, rate = soundfile.read(FOLDER / "callers.ogg", dtype="int16")
    assert rate == SAMPLE_RATE_HZ
    return samples


def cut(place: list[int]) -> NDArray[np.int16]:
    """Take an utterance off the tape."""
    first, length = place
    return tape()[first : first + length]


@functools.cache
def calls() -> tuple[Call, ...]:
    """All calls."""
    described = json.loads((FOLDER / "calls.json").read_text(encoding="utf-8"))
    return tuple(_call(call) for call in described)


def _call(described: dict[str, Any]) -> Call:
    asked = [Asked(**{**q, "facts": tuple(q["facts"])}) for q in described["asked"]]
    draw = np.random.default_rng(len(described["persona"]))
    frames = round(asked[-1].until_s / FRAME_S)
    caller = np.rint(3.0 * draw.standard_normal(frames * FRAME_SAMPLES)).astype(np.int16)
    for part in described["caller"]:
        sound = cut(part["tape"])[: max(0, len(caller) - part["at"])]
        caller[part["at"] : part["at"] + len(sound)] += sound
    return Call(
        name=described["set"],
        persona=described["persona"],
        caller=caller,
        asked=asked,
        murmur=cut(described["murmur"]),
        interruption=cut(described["interruption"]),
    )


def median_pitch_hz(pcm: NDArray[np.int16]) -> float:
    """Give the median pitch of the louder voiced parts of speech, 60 to 400 Hz; 0 without any."""
    length = SAMPLE_RATE_HZ // 20
    frames = pcm[: len(pcm) // length * length].reshape(-1, length).astype(np.float64)
    loud = frames[np.sqrt((frames**2).mean(1)) > 600.0]
    pitches = []
    for frame in loud:
        spectrum = np.abs(np.fft.rfft(frame - frame.mean(), 4 * length)) ** 2
        echo = np.fft.irfft(spectrum)[: length // 2]
        low, high = SAMPLE_RATE_HZ // 400, SAMPLE_RATE_HZ // 60
        lag = low + int(echo[low:high].argmax())
        if echo[lag] > 0.4 * echo[0]:
            pitches.append(SAMPLE_RATE_HZ / lag)
    return float(np.median(pitches)) if pitches else 0.0
