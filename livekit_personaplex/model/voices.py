"""Voices: what an agent's first seconds are forced to be, so that it sounds like someone."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice prompt, either as codes or as the inputs they summed up to.

    Attributes:
        name: What clients ask for.
        codes: ``[8, F] int64`` codes of F frames of speech, or None.
        embeddings: ``[T, E] float32`` summed inputs of T steps, or None.
        cache: ``[17, 4] int64`` token ring after those steps; None exactly when embeddings are.
    """

    name: str
    codes: NDArray[np.int64] | None = None
    embeddings: NDArray[np.float32] | None = None
    cache: NDArray[np.int64] | None = None


class VoiceLibrary:
    """Voices by name. Any thread may ask."""

    def __init__(
        self, voices: Mapping[str, Voice], recordings: Mapping[str, Callable[[], Voice]]
    ) -> None:
        """Hold voices by the names they can be asked for.

        Args:
            voices: Ready to use.
            recordings: Voices that are made when they are first asked for.
        """
        self._voices = dict(voices)
        self._recordings = dict(recordings)
        self._lock = threading.Lock()
        self._names = tuple(sorted({voice.name for voice in voices.values()} | recordings.keys()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names to choose from, sorted."""
        return self._names

    def get(self, name: str) -> Voice:
        """Look up a voice; a recording that has a saved form is encoded at its first use.

        Raises:
            ConfigError: There is none of that name; the message lists all.
        """
        if name in self._recordings:
            with self._lock:
                if name not in self._voices:
                    self._voices[name] = self._recordings[name]()
        voice = self._voices.get(name)
        if voice is None:
            raise ConfigError(
                f"unknown voice {name!r}; this engine has: {', '.join(self._names) or 'none'}"
            )
        return voice
