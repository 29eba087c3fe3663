"""espeak-ng in this process, with the onset of every word from its events.

The library comes with the package ``espeakng-loader``, its voices and rules included.
"""

import ctypes
from collections.abc import Mapping, Sequence

import espeakng_loader
import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from examples.demo_model.speech.utterance import LABEL, Utterance, Word, level, trim
from examples.demo_model.talk.domain import Token
from livekit_personaplex.audio import SAMPLE_RATE_HZ

_SYNCHRONOUS, _CHARS_UTF8, _POSITION_CHARACTER = 2, 1, 1
_RATE, _PITCH, _RANGE = 1, 3, 4
_WORD_EVENT, _LIST_END = 1, 0


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


class Espeak:
    """The library, opened once per process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(espeakng_loader.get_library_path())
        folder = espeakng_loader.get_data_path().encode()
        self.rate = self.library.espeak_Initialize(_SYNCHRONOUS, 0, folder, 0)
        self.audio: list[NDArray[np.int16]] = []
        self.onsets: dict[int, float] = {}
        self.callback = _CALLBACK(self._take)
        self.library.espeak_SetSynthCallback(self.callback)

    def _take(self, samples: object, count: int, events: object) -> int:
        if count > 0:
            pointer = ctypes.cast(samples, ctypes.POINTER(ctypes.c_short))  # type: ignore[arg-type]
            self.audio.append(np.ctypeslib.as_array(pointer, (count,)).astype(np.int16))
        index = 0
        while events[index].type != _LIST_END:  # type: ignore[index]
            event = events[index]  # type: ignore[index]
            if event.type == _WORD_EVENT:
                self.onsets.setdefault(event.text_position - 1, event.audio_position / 1000)
            index += 1
        return 0

    def say(
        self, tokens: Sequence[Token], settings: Mapping[str, float | str], r: np.random.Generator
    ) -> Utterance:
        """Speak in the voice ``settings["voice"]``; a word ends where the next begins."""
        del r  # this engine has no noise of its own
        self.library.espeak_SetVoiceByName(str(settings["voice"]).encode())
        self.library.espeak_SetParameter(_RATE, int(settings["rate"]), 0)
        self.library.espeak_SetParameter(_PITCH, int(settings["pitch"]), 0)
        self.library.espeak_SetParameter(_RANGE, int(settings["range"]), 0)
        spoken = " ".join(word for token in tokens for word in token.spoken)
        text = spoken.encode()
        self.audio, self.onsets = [], {}
        self.library.espeak_Synth(
            text, len(text) + 1, 0, _POSITION_CHARACTER, 0, _CHARS_UTF8, None, None
        )
        raw = np.concatenate([np.zeros(1, np.int16), *self.audio]).astype(np.float32) / 32768
        audio, cut_s = trim(
            resample_poly(raw, SAMPLE_RATE_HZ // 50, self.rate // 50).astype(np.float32)
        )
        labels = np.full(-(-len(audio) // LABEL), -1, dtype=np.int16)
        words = self._words(tokens, cut_s, len(audio) / SAMPLE_RATE_HZ)
        return Utterance(level(audio), words, labels)

    def _words(self, tokens: Sequence[Token], cut_s: float, seconds: float) -> list[Word]:
        """Times of the words; those that the library ran together are spread by their letters."""
        positions = [0]
        for token in tokens:
            positions.append(positions[-1] + sum(len(word) + 1 for word in token.spoken))
        known = {**self.onsets, positions[-1]: seconds + cut_s - 0.05}
        at = sorted(position for position in known if position <= positions[-1])
        borders = np.interp(positions, at, [known[position] - cut_s for position in at])
        borders = np.clip(borders, 0.0, seconds)
        return [
            Word(token.written, float(on_s), float(off_s))
            for token, on_s, off_s in zip(tokens, borders[:-1], borders[1:], strict=True)
        ]
