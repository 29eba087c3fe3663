"""English speech to text on this machine's CPU, for captions of a caller: a process of its own.

Moonshine's smallest model, which its package brings: nothing is downloaded and no key is needed.
The package is optional.

On standard input come pieces of 16 kHz mono int16, each after its number of bytes as a u32; a piece
of no bytes makes final what was heard so far. Each is answered on standard output: a line of JSON
for every `Reading` that is new, then an empty line. The end of the input ends the process.
"""

import os
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.wire.json_message import JsonMessage, dump_json

PACKAGE = "moonshine-voice"
INSTALL = "pip install 'livekit-personaplex[captions]'"
MODEL_NAME = "moonshine-tiny-en"
RATE_HZ = 16_000

_READ_EVERY_S = 0.5
_QUIET_S = 2.0
_NICENESS = 10
_LENGTH = struct.Struct("<I")
_OPTIONS = {"identify_speakers": "false", "return_audio_data": "false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a stretch of speech is read as, so far.

    Attributes:
        stretch: Tells stretches apart.
        text: All its words.
        is_final: Nothing about it will change any more.
        began_ago_s: How much was heard since its first sound.
        duration_s: How long it is.
    """

    stretch: str
    text: str
    is_final: bool
    began_ago_s: float
    duration_s: float

    @classmethod
    def parse(cls, line: str) -> "Reading":
        """Read what the process wrote. Raises `ProtocolError`."""
        message = JsonMessage(line)
        return cls(
            stretch=message.take_str("stretch"),
            text=message.take_str("text"),
            is_final=message.take_bool("is_final"),
            began_ago_s=message.take_float("began_ago_s"),
            duration_s=message.take_float("duration_s"),
        )


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


def pack_piece(pcm: bytes) -> bytes:
    """Write a piece of audio for the process; without any, it makes final what it heard."""
    return _LENGTH.pack(len(pcm)) + pcm


def recognize(source: BinaryIO, sink: BinaryIO) -> None:
    """Be the process: answer pieces until there are no more. Blocks.

    Raises:
        ConfigError: There is no model.
        MoonshineError: It cannot be loaded or run.
    """
    from moonshine_voice.moonshine_api import ModelArch
    from moonshine_voice.transcriber import Transcriber

    def tell(reading: Reading) -> None:
        sink.write(f"{dump_json(asdict(reading))}\n".encode())

    with Transcriber(find_model(), ModelArch.TINY, options=_OPTIONS) as transcriber:
        ear = _Ear(transcriber, tell)
        while header := source.read(_LENGTH.size):
            ear.hear(source.read(*_LENGTH.unpack(header)))
            sink.write(b"\n")
            sink.flush()


class _Ear:
    """Moonshine's stream. It keeps all it has heard, so a new one is taken wherever it is quiet."""

    def __init__(self, transcriber: Any, tell: Callable[[Reading], None]) -> None:
        self._transcriber = transcriber
        self._tell = tell
        self._stream: Any = None
        self._heard_s = self._read_s = 0.0
        self._renew()

    def hear(self, pcm: bytes) -> None:
        if not pcm:
            self._read(self._stream.stop())
            self._renew()
            return
        samples = np.frombuffer(pcm, dtype=np.int16).astype(np.float32) / 32768.0
        self._stream.add_audio(samples.tolist(), RATE_HZ)
        self._heard_s += len(samples) / RATE_HZ
        if self._heard_s - self._read_s >= _READ_EVERY_S:
            self._read_s = self._heard_s
            transcript = self._stream.update_transcription()
            self._read(transcript)
            if self._is_over(transcript):
                self._renew()

    def _read(self, transcript: Any) -> None:
        for line in transcript.lines:
            if line.has_text_changed or (line.is_complete and line.is_updated):
                self._tell(
                    Reading(
                        stretch=str(line.line_id),
                        text=line.text,
                        is_final=line.is_complete,
                        began_ago_s=self._heard_s - line.start_time,
                        duration_s=line.duration,
                    )
                )

    def _is_over(self, transcript: Any) -> bool:
        """Whether all that was said is final, and nothing was said for a while."""
        if not transcript.lines or not all(line.is_complete for line in transcript.lines):
            return False
        last = transcript.lines[-1]
        return bool(self._heard_s - (last.start_time + last.duration) > _QUIET_S)

    def _renew(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._heard_s = self._read_s = 0.0
        self._stream = self._transcriber.create_stream(update_interval=float("inf"))
        self._stream.start()


if __name__ == "__main__":
    if sys.platform != "win32":
        os.nice(_NICENESS)  # a call is more urgent than its captions
    recognize(sys.stdin.buffer, sys.stdout.buffer)
