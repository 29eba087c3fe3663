"""English speech to text on this machine's CPU, for captions of a caller.

Moonshine's smallest model, which its package brings: nothing is downloaded and no key is needed.
The package is optional. Its library lets Python run while it decodes, so a thread is enough.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.log import logger

PACKAGE = "moonshine-voice"
INSTALL = "pip install 'livekit-personaplex[captions]'"
RATE_HZ = 16_000
MAX_WAITING_S = 5.0
"""Audio that waits longer than this is left out: what is read is what is said now."""

_READ_EVERY_S = 0.5
_QUIET_S = 2.0
_PIECE_S = 0.1
_BYTES_PER_S = 2 * RATE_HZ
_NICENESS = 10
_OPTIONS = {"identify_speakers": "false", "return_audio_data": "false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a stretch of speech is read as, so far.

    Attributes:
        stretch: Tells stretches apart.
        text: All its words.
        is_final: Nothing about it will change any more.
        began_s: When its first sound was heard, on the clock of ``time.time``.
        duration_s: How long it is.
    """

    stretch: int
    text: str
    is_final: bool
    began_s: float
    duration_s: float


def find_model() -> Path:
    """Give the folder of the recogniser's model; loads nothing.

    Raises:
        ConfigError: The package is not installed, or has no model in it.
    """
    found = find_spec("moonshine_voice")
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = Path(place) / "assets" / "tiny-en"
        if (folder / "encoder_model.ort").is_file():
            return folder
    what = "is not installed" if found is None else "came without its English model"
    raise ConfigError(
        f"captions of the caller need the package {PACKAGE}, which {what}; "
        f"install it with: {INSTALL}"
    )


class SpeechReader:
    """Reads one speaker. `run` is for a thread of its own, everything else for any thread.

    Args:
        model: As `find_model` gives it.
        tell: Given each reading, on the thread of `run`.
        max_waiting_s: How much audio may wait for that thread.
    """

    def __init__(
        self,
        model: Path,
        *,
        tell: Callable[[Reading], None],
        max_waiting_s: float = MAX_WAITING_S,
    ) -> None:
        self.left_out_s = 0.0
        self._model = model
        self._tell = tell
        self._max_waiting_s = max_waiting_s
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._is_flushed = False
        self._is_finished = False
        self._is_stopped = False

    def hear(self, pcm: bytes) -> None:
        """Take 16 kHz mono int16. Never blocks: what `run` cannot keep up with is left out."""
        with self._changed:
            waiting_s = len(self._waiting) / _BYTES_PER_S
            is_late = waiting_s > self._max_waiting_s
            if is_late:
                self.left_out_s += waiting_s
                self._waiting.clear()
            self._waiting += pcm
            self._changed.notify()
        if is_late:
            logger.warning(
                "captions of the caller lag behind, so a part of the call is not read",
                extra={"now_s": round(waiting_s, 1), "so_far_s": round(self.left_out_s, 1)},
            )

    def flush(self) -> None:
        """Let what was heard so far be read as final."""
        self._set("_is_flushed")

    def finish(self) -> None:
        """Let `run` read what was heard so far and return."""
        self._set("_is_finished")

    def stop(self) -> None:
        """Let `run` return as soon as it can, with what it has not read left unread."""
        self._set("_is_stopped")

    def run(self) -> None:
        """Read until told to finish or to stop. Blocks; gives way to every other thread.

        Raises:
            MoonshineError: The model cannot be loaded or run.
        """
        if sys.platform == "linux":  # where each thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with _load(self._model) as transcriber:
            ear = _Ear(transcriber, self._tell)
            try:
                while self._step(ear):
                    pass
            finally:
                ear.close()

    def _step(self, ear: "_Ear") -> bool:
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._is_stopped:
                return False
            num_bytes = int(_PIECE_S * _BYTES_PER_S)
            piece = bytes(self._waiting[:num_bytes])
            del self._waiting[:num_bytes]
            is_finished = self._is_finished and not self._waiting
            is_flushed = (self._is_flushed and not self._waiting) or is_finished
            self._is_flushed = self._is_flushed and not is_flushed
        ear.hear(piece)
        if is_flushed:
            ear.end()
        return not is_finished

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._is_flushed or self._is_finished or self._is_stopped

    def _set(self, flag: str) -> None:
        with self._changed:
            setattr(self, flag, True)
            self._changed.notify()


class _Ear:
    """Moonshine's stream. It keeps all it has heard, so a new one is taken wherever it is quiet."""

    def __init__(self, transcriber: Any, tell: Callable[[Reading], None]) -> None:
        self._transcriber = transcriber
        self._tell = tell
        self._stream: Any = None
        self._heard_s = self._read_s = 0.0
        self._open()

    def hear(self, pcm: bytes) -> None:
        if not pcm:
            return
        samples = np.frombuffer(pcm, dtype=np.int16).astype(np.float32) / 32768.0
        self._stream.add_audio(samples.tolist(), RATE_HZ)
        self._heard_s += len(samples) / RATE_HZ
        if self._heard_s - self._read_s >= _READ_EVERY_S:
            self._read_s = self._heard_s
            self._read(self._stream.update_transcription())

    def end(self) -> None:
        """Read all that was heard as final."""
        self._read(self._stream.stop())
        self.close()
        self._open()

    def close(self) -> None:
        self._stream.close()

    def _open(self) -> None:
        self._heard_s = self._read_s = 0.0
        self._stream = self._transcriber.create_stream(update_interval=float("inf"))
        self._stream.start()

    def _read(self, transcript: Any) -> None:
        now_s = time.time()
        for line in transcript.lines:
            if line.has_text_changed or (line.is_complete and line.is_updated):
                self._tell(
                    Reading(
                        stretch=line.line_id,
                        text=line.text,
                        is_final=line.is_complete,
                        began_s=now_s - (self._heard_s - line.start_time),
                        duration_s=line.duration,
                    )
                )
        if transcript.lines and all(line.is_complete for line in transcript.lines):
            last = transcript.lines[-1]
            if self._heard_s - (last.start_time + last.duration) > _QUIET_S:
                self.close()
                self._open()


def _load(model: Path) -> Any:
    from moonshine_voice.moonshine_api import ModelArch
    from moonshine_voice.transcriber import Transcriber

    return Transcriber(model, ModelArch.TINY, options=_OPTIONS)
