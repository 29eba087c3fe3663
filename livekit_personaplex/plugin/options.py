"""What a call may ask for: the options of a `PersonaPlexModel`, and the same from job metadata.

Values are checked here, where a mistake is made, and once more by the engine, which alone knows its
voices and how long a persona may be.
"""

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from livekit.agents import stt

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.plugin.watchdogs import Watchdogs
from livekit_personaplex.sampling import SAMPLING_FIELDS, Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.protocol import (
    MAX_PERSONA_BYTES,
    MAX_VOICE_CHARS,
    FirstSpeaker,
    check_speech,
)

MAX_METADATA_BYTES = 65_536
METADATA_KEYS = ("voice", "persona", "greeting", "first_speaker", "temperature", *SAMPLING_FIELDS)
"""``temperature`` is short for ``text_temperature`` and ``audio_temperature`` together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonaPlexOptions:
    """Options of one call; `PersonaPlexModel` documents them.

    Raises:
        ConfigError: A value cannot be used; the message says which and why.
    """

    voice: str | None = None
    persona: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    auto_arm: bool = True
    output_prebuffer_ms: int = 40
    min_silence_ms: int = 800
    engine: str | None = None
    token: str | None = field(default=None, repr=False)
    open_timeout_s: float = 10.0
    greeting: str = ""
    first_speaker: FirstSpeaker = "model"
    caller_first_timeout_s: float = 10.0
    user_stt: "stt.STT[Any] | None" = field(default=None, repr=False)
    watchdogs: Watchdogs = field(default_factory=Watchdogs)

    def __post_init__(self) -> None:
        if self.voice is not None:
            _check_voice(self.voice)
        if self.persona is not None:
            _check_persona(self.persona)
        _check_greeting(self.greeting, self.first_speaker)
        if self.user_stt is not None:
            _check_stt(self.user_stt)
        if not isinstance(self.watchdogs, Watchdogs):
            raise ConfigError(f"watchdogs must be Watchdogs, got {type(self.watchdogs).__name__}")
        if not isinstance(self.sampling, Sampling):
            raise ConfigError(f"sampling must be a Sampling, got {type(self.sampling).__name__}")
        _check_ms("output_prebuffer_ms", self.output_prebuffer_ms, low=0, high=500)
        _check_ms("min_silence_ms", self.min_silence_ms, low=80, high=5_000)
        if self.engine is not None:
            EngineAddress.parse(self.engine)
        _check_timeout("open_timeout_s", self.open_timeout_s)
        _check_timeout("caller_first_timeout_s", self.caller_first_timeout_s)

    def with_metadata(self, metadata: str) -> "PersonaPlexOptions":
        """These options, changed by a job's metadata.

        Metadata comes from whoever could mint a token: it is refused unless it is a small JSON
        object with known keys. Errors do not repeat what it holds, except a value of sampling.

        Args:
            metadata: ``{"voice": ..., "persona": ..., "seed": ..., "temperature": ..., ...}``, any
                of `METADATA_KEYS`; empty changes nothing.

        Raises:
            ConfigError: It is something else, or a value cannot be used.
        """
        if not metadata.strip():
            return self
        given = _parse_metadata(metadata)
        if "temperature" in given:
            temperature = given.pop("temperature")
            given = {"text_temperature": temperature, "audio_temperature": temperature} | given
        drawn = {name: given.pop(name) for name in SAMPLING_FIELDS if name in given}
        return replace(self, sampling=replace(self.sampling, **drawn), **given)


def _parse_metadata(metadata: str) -> dict[str, Any]:
    num_bytes = len(metadata.encode(errors="replace"))
    if num_bytes > MAX_METADATA_BYTES:
        raise ConfigError(
            f"job metadata may take {MAX_METADATA_BYTES} bytes, got {num_bytes}; shorten it"
        )
    try:
        given: object = json.loads(metadata, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ConfigError("job metadata must be a JSON object, got something else") from None
    if not isinstance(given, dict):
        raise ConfigError(f"job metadata must be a JSON object, got a {type(given).__name__}")
    if unknown := given.keys() - set(METADATA_KEYS):
        raise ConfigError(
            f"job metadata has {len(unknown)} unknown keys; known are {', '.join(METADATA_KEYS)}"
        )
    return given


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _check_voice(voice: object) -> None:
    if not isinstance(voice, str):
        raise ConfigError(f"voice must be a name, got a {type(voice).__name__}")
    if not 0 < len(voice) <= MAX_VOICE_CHARS:
        raise ConfigError(f"voice must have 1..{MAX_VOICE_CHARS} characters, got {len(voice)}")
    if not voice.isprintable():
        raise ConfigError("voice must be a name, got characters that no name has")
    if set(voice) & set("/\\") or voice.startswith("."):
        raise ConfigError("voice must be a name from the engine's list, got what looks like a path")


def _check_persona(persona: object) -> None:
    if not isinstance(persona, str):
        raise ConfigError(f"persona must be text, got a {type(persona).__name__}")
    try:
        num_bytes = len(persona.encode())
    except UnicodeEncodeError:
        raise ConfigError("persona must be Unicode text, got half a surrogate pair") from None
    if num_bytes > MAX_PERSONA_BYTES:
        raise ConfigError(
            f"persona may take {MAX_PERSONA_BYTES} bytes of UTF-8, got {num_bytes}; shorten it"
        )


def _check_greeting(greeting: object, first_speaker: object) -> None:
    if not isinstance(greeting, str):
        raise ConfigError(f"greeting must be text, got a {type(greeting).__name__}")
    check_speech(greeting, name="greeting")
    if first_speaker not in get_args(FirstSpeaker):
        raise ConfigError(f"first_speaker must be one of {', '.join(get_args(FirstSpeaker))}")


def _check_stt(recognizer: object) -> None:
    if not isinstance(recognizer, stt.STT):
        raise ConfigError(f"user_stt must be a LiveKit STT, got {type(recognizer).__name__}")
    if not recognizer.capabilities.streaming:
        raise ConfigError(
            f"user_stt must stream, and {recognizer.label} does not; give "
            "livekit.agents.stt.StreamAdapter(stt=..., vad=...) with it inside"
        )


def _check_timeout(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be above 0, got {value!r}")


def _check_ms(name: str, value: object, *, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} must be a whole number in {low}..{high}, got {value!r}")
