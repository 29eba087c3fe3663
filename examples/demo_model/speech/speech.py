"""The neural text to speech: one voice, bent into many, with the times of words and phonemes.

The network of ``hibari-tts`` gives spectral envelopes, pitch and durations; a vocoder in numpy
turns them into audio. Pitch, pitch range, length of the vocal tract, tilt, breath, blur and the
pace of each stretch of speech are changed between the two, which yields any number of voices.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime
from hibari import dsp
from hibari.g2p import G2P
from hibari.voices import DEFAULT, voice_path
from numpy.typing import NDArray

from examples.demo_model.speech.phase_lock import locked_synthesis
from examples.demo_model.speech.utterance import LABEL, Utterance, Word, level
from examples.demo_model.talk.domain import Token
from livekit_personaplex.audio import SAMPLE_RATE_HZ

READINGS = Path(__file__).with_name("readings.json")
"""How names that the lexicon lacks are read: made by the package's spelling net, mended by hand."""
_UNIT = 600
"""Samples of one unit of duration."""
_EARLY = 2
"""Units by which sounds come before the time that the durations say, measured on vowels."""
_DURATIONS = "/Clip_output_0"
"""The tensor of the graph that holds each phoneme's duration."""
_SPACE, _LONG, _STRESS = 16, 158, (156, 157)
_PUNCTUATION_END = 16
_LONGEST_GAP_S = 0.1
_SOFTEST = 0.025
"""Share of the peak below which the ends of an utterance are taken for silence."""

Arrays = list[NDArray[np.float32]]


class Speech:
    """The network and the reading of words; one per process, on one thread."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = _with_durations(Path(voice_path(DEFAULT)).read_bytes())
        self.session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self.ids: dict[str, int] = json.loads(
            (Path(dsp.__file__).parent / "assets/vocab.json").read_text(encoding="utf-8")
        )
        readings: dict[str, str] = json.loads(READINGS.read_text(encoding="utf-8"))
        self.g2p: Callable[[str], str] = G2P(oov=readings.__getitem__)
        self.phonemes = lru_cache(maxsize=65536)(self._phonemes)

    def _phonemes(self, spoken: tuple[str, ...]) -> str:
        whole = self.g2p(" ".join(spoken))
        if len(whole.split()) == len(spoken):
            return whole
        return " ".join(self.g2p(word).replace(" ", "") for word in spoken)

    def say(
        self, tokens: Sequence[Token], settings: Mapping[str, float | str], r: np.random.Generator
    ) -> Utterance:
        """Speak; ``settings`` as in ``voices.py``, missing ones leave the voice as it is."""
        numbers = {name: float(value) for name, value in settings.items()}
        spoken = tuple(word for token in tokens for word in token.spoken)
        kept = [c for c in self.phonemes(spoken) if c in self.ids]
        ids = np.array([[0, *(self.ids[c] for c in kept), 0]], dtype=np.int64)
        speed = np.array([numbers.get("speed", 1.0)], dtype=np.float32)
        *arrays, durations = self.session.run(None, {"ids": ids, "speed": speed})
        units = np.concatenate([[0], np.cumsum(durations.reshape(-1))])
        bent, units = _bend([a[0] for a in arrays], units, numbers, r)
        times = np.maximum(units - _EARLY, 0.0) * (_UNIT / SAMPLE_RATE_HZ)
        words = _word_times(kept, times[1:], tokens)
        if settings.get("lock"):
            audio = locked_synthesis(bent, int(_start_s(words) * SAMPLE_RATE_HZ), r)
        else:
            audio = dsp.synth(*bent, r)
        return _cut(audio, words, ids[0, 1:-1], times[1:-1])


def _bend(
    arrays: Arrays,
    units: NDArray[np.float64],
    settings: Mapping[str, float],
    r: np.random.Generator,
) -> tuple[Arrays, NDArray[np.float64]]:
    """Change the vocoder's parameters ``[601, F]``, pitch ``[F]``, and phoneme borders in units."""
    lh, th, ln, lr, phi, f0 = arrays
    pace = settings.get("pace", 0.0)
    if pace:
        at, units = _paced(f0.shape[0], units, pace, r)
        lh, th, ln, lr, phi = (a[:, at] for a in (lh, th, ln, lr, phi))
        f0 = f0[at]
    voiced = f0 > 40
    if voiced.any() and not settings.keys().isdisjoint(("f0", "range", "drift")):
        mean = float(np.log(f0[voiced]).mean())
        curve = (np.log(np.maximum(f0, 1.0)) - mean) * settings.get("range", 1.0)
        slow = np.interp(np.arange(len(f0)), np.linspace(0, len(f0), 5), r.standard_normal(5))
        curve += mean + settings.get("drift", 0.0) * slow
        f0 = np.where(voiced, np.exp(curve) * settings.get("f0", 1.0), 0.0).astype(np.float32)
    warp, blur = settings.get("warp", 1.0), int(settings.get("blur", 0))
    if warp != 1.0:
        lh, ln, lr, th = (_warp(a, warp) for a in (lh, ln, lr, th))
        phi = r.uniform(-np.pi, np.pi, phi.shape).astype(np.float32)
    if blur > 1:
        lh, ln, lr = (_blur(a, blur) for a in (lh, ln, lr))
    tilt, breath = settings.get("tilt", 0.0), settings.get("breath", 0.0)
    if tilt or breath:
        octaves = np.log2(np.maximum(np.arange(len(lh)) * 20, 500) / 500)
        slope = (tilt * octaves / 8.686).astype(np.float32)[:, None]
        lh, ln, lr = lh + slope, ln + slope + breath / 8.686, lr + slope + breath / 8.686
    return [lh, th, ln, lr, phi, f0], units


def _paced(
    frames: int, units: NDArray[np.float64], pace: float, r: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Hurry and drag: which old frame is heard at each new one, and the moved borders."""
    knots = max(3, frames // 16)
    rate = np.exp(pace * r.standard_normal(knots))
    cost = np.interp(np.arange(frames), np.linspace(0, frames, knots), rate)
    moved = np.concatenate([[0.0], np.cumsum(cost)])
    count = int(moved[-1])
    at = np.interp(np.arange(count), moved[:-1], np.arange(frames)).astype(np.int64)
    per_unit = _UNIT / dsp.HOP
    return at, np.interp(units * per_unit, np.arange(frames + 1), moved) / per_unit


def _warp(x: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    bins = np.arange(len(x)) / factor
    low = np.minimum(bins.astype(np.int64), len(x) - 2)
    part = np.minimum(bins - low, 1.0).astype(np.float32)[:, None]
    warped: NDArray[np.float32] = x[low] * (1 - part) + x[low + 1] * part
    return warped


def _blur(x: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    padded = np.pad(x, ((bins // 2 + 1, bins - bins // 2 - 1), (0, 0)), mode="edge")
    total = np.cumsum(padded, axis=0, dtype=np.float64)
    blurred: NDArray[np.float32] = ((total[bins:] - total[:-bins]) / bins).astype(np.float32)
    return blurred


def _word_times(
    kept: Sequence[str], times: NDArray[np.float64], tokens: Sequence[Token]
) -> list[Word]:
    """Give each written word the span of its phonemes, spaces and punctuation left out."""
    starts: list[float] = []
    ends: list[float] = []
    is_fresh = True
    for i, phoneme in enumerate(kept):
        if phoneme == " ":
            is_fresh = True
        elif phoneme.isalpha() or phoneme in "ˈˌ":
            if is_fresh:
                starts.append(float(times[i]))
                ends.append(0.0)
                is_fresh = False
            ends[-1] = float(times[i + 1])
    expected = sum(len(token.spoken) for token in tokens)
    if len(starts) != expected:
        raise ValueError(f"{len(starts)} words were heard in the phonemes of {expected}: {kept}")
    words, first = [], 0
    for token in tokens:
        last = first + len(token.spoken) - 1
        words.append(Word(token.written, starts[first], ends[last]))
        first = last + 1
    return words


def _cut(
    audio: NDArray[np.float32],
    words: list[Word],
    ids: NDArray[np.int64],
    times: NDArray[np.float64],
) -> Utterance:
    """Cut to 40 ms before the first word and 80 ms after the last sound; label the phonemes.

    A stress mark's time belongs to the phoneme after it, a length mark's to the one before, a
    short gap between words to both neighbours.
    """
    start = _start_s(words)
    loud = np.flatnonzero(np.abs(audio) > _SOFTEST * np.abs(audio).max())
    last = words[-1]
    words[-1] = Word(last.written, last.on_s, max(float(loud[-1]) / SAMPLE_RATE_HZ, last.on_s))
    end = min(len(audio) / SAMPLE_RATE_HZ, words[-1].off_s + 0.08)
    heard = level(audio[int(start * SAMPLE_RATE_HZ) : int(end * SAMPLE_RATE_HZ)])
    sounds = ids.copy()
    for i in range(len(sounds) - 2, -1, -1):
        if sounds[i] in _STRESS:
            sounds[i] = sounds[i + 1]
    for i in range(1, len(sounds)):
        if sounds[i] == _LONG:
            sounds[i] = sounds[i - 1]
    is_gap = (sounds == _SPACE) & (np.diff(times) <= _LONGEST_GAP_S)
    times = times.copy()
    for i in np.flatnonzero(is_gap).tolist():
        times[i] = times[i + 1] = (times[i] + times[i + 1]) / 2
    sounds[sounds <= _PUNCTUATION_END] = 0
    middles = start + (np.arange(-(-len(heard) // LABEL)) + 0.5) * (LABEL / SAMPLE_RATE_HZ)
    at = np.clip(np.searchsorted(times, middles, side="right") - 1, 0, len(sounds) - 1)
    is_sound = (middles >= words[0].on_s) & (middles < words[-1].off_s)
    labels = np.where(is_sound, sounds[at], 0).astype(np.int16)
    moved = [Word(w.written, w.on_s - start, w.off_s - start) for w in words]
    return Utterance(heard, moved, labels)


def _start_s(words: list[Word]) -> float:
    return max(0.0, words[0].on_s - 0.04)


def _with_durations(model: bytes) -> bytes:
    """Make the durations an output of the graph.

    Messages of the same field that follow each other are merged by a reader of the format, so
    a second ``graph`` with one ``output`` appended to the file adds that output.
    """

    def field(number: int, content: bytes) -> bytes:
        size, rest = b"", len(content)
        while rest > 127:
            size += bytes([rest & 127 | 128])
            rest >>= 7
        return bytes([number << 3 | 2]) + size + bytes([rest]) + content

    float_tensor = field(1, b"\x08\x01")
    value = field(1, _DURATIONS.encode()) + field(2, float_tensor)
    return model + field(7, field(12, value))
