"""One spoken utterance: audio, the times of its words and its phonemes. Pure numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ

LABEL = 480
"""Samples of one phoneme label (20 ms)."""
PHONEMES = 178
"""Labels are below this; 0 is a pause, -1 unknown."""
SPEECH_RMS = 0.09


@dataclass(frozen=True, slots=True)
class Word:
    """A written word and when it is heard, in seconds from the utterance's start."""

    written: str
    on_s: float
    off_s: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was said.

    Attributes:
        audio: ``[N] float32`` at 24 kHz.
        words: In order; None where the engine gives no times.
        labels: ``[ceil(N / 480)] int16`` phoneme of each 20 ms.
    """

    audio: NDArray[np.float32]
    words: list[Word] | None
    labels: NDArray[np.int16]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.audio) / SAMPLE_RATE_HZ


def level(audio: NDArray[np.float32], target: float = SPEECH_RMS) -> NDArray[np.float32]:
    """Bring the louder half of an utterance to one RMS, so that all voices are equally loud."""
    if len(audio) < LABEL:
        return audio
    energy = np.add.reduceat(audio * audio, np.arange(0, len(audio), LABEL)) / LABEL
    loud = energy[energy > 0.09 * energy.max()]
    gain = target / (float(np.sqrt(loud.mean())) + 1e-6)
    levelled: NDArray[np.float32] = np.clip(audio * gain, -0.99, 0.99).astype(np.float32)
    return levelled


def trim(audio: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Cut silence off both ends by its level; give the audio and the seconds cut at the start."""
    loud = np.flatnonzero(np.abs(audio) > 0.02 * np.abs(audio).max(initial=1e-3))
    if len(loud) == 0:
        return audio[:0], 0.0
    first = max(0, int(loud[0]) - SAMPLE_RATE_HZ // 50)
    return audio[first : int(loud[-1]) + SAMPLE_RATE_HZ // 20], first / SAMPLE_RATE_HZ


def speech_bounds(utterance: Utterance) -> tuple[float, float]:
    """Give the seconds at which speech begins and ends, by the words or by the level."""
    if utterance.words:
        return utterance.words[0].on_s, utterance.words[-1].off_s
    loud = np.flatnonzero(np.abs(utterance.audio) > 0.03)
    if len(loud) == 0:
        return 0.0, utterance.seconds
    return float(loud[0]) / SAMPLE_RATE_HZ, float(loud[-1]) / SAMPLE_RATE_HZ


def join(parts: Sequence[Utterance], pauses_s: Sequence[float], grid: int = LABEL) -> Utterance:
    """Put utterances in a row with a pause after each but the last.

    Each begins at a multiple of ``grid`` samples, itself a multiple of a label.
    """
    audio: list[NDArray[np.float32]] = []
    labels: list[NDArray[np.int16]] = []
    words: list[Word] | None = []
    at = 0
    for part, pause_s in zip(parts, [*pauses_s, 0.0], strict=True):
        length = -(-(len(part.audio) + int(pause_s * SAMPLE_RATE_HZ)) // grid) * grid
        audio.append(np.pad(part.audio, (0, length - len(part.audio))))
        labels.append(np.pad(part.labels, (0, length // LABEL - len(part.labels))))
        if part.words is None or words is None:
            words = None
        else:
            s = at / SAMPLE_RATE_HZ
            words += [Word(w.written, w.on_s + s, w.off_s + s) for w in part.words]
        at += length
    return Utterance(np.concatenate(audio), words, np.concatenate(labels))
