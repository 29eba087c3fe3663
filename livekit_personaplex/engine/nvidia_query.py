"""What a client of NVIDIA's protocol asks for: the query of ``/api/chat`` as an `OpenRequest`.

====================  =================================================================
voice_prompt          name of a voice, also with ``.pt`` behind it, as NVIDIA's clients send it
text_prompt           persona; without it, or empty, there is none
seed                  whole number; without it, or -1, a random one
text_temperature      as `Sampling` has them; NVIDIA's own server ignores these four
text_topk
audio_temperature
audio_topk
====================  =================================================================

What else NVIDIA's browser client sends (``pad_mult``, ``repetition_penalty``, ``text_seed``, ...)
is ignored, as NVIDIA's server does: the model has no such knobs.
"""

import math
from collections.abc import Collection, Mapping

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.wire.protocol import OpenRequest

_RANDOM_SEED = "-1"
_SAVED_VOICE_SUFFIX = ".pt"
_DEFAULTS = Sampling()


def read_query(query: Mapping[str, str], voices: Collection[str]) -> OpenRequest:
    """Read the query of a chat.

    Args:
        query: Decoded; of a name that is there twice, its first value.
        voices: Names of the engine's voices. Nothing else is ever taken for one, so no path is.

    Raises:
        ConfigError: The voice is unknown or missing, or a number is none or out of its range.
    """
    return OpenRequest(
        voice=_read_voice(query.get("voice_prompt", ""), voices),
        persona=query.get("text_prompt", ""),
        sampling=Sampling(
            text_temperature=_read_float(query, "text_temperature", _DEFAULTS.text_temperature),
            text_top_k=_read_int(query, "text_topk", _DEFAULTS.text_top_k),
            audio_temperature=_read_float(query, "audio_temperature", _DEFAULTS.audio_temperature),
            audio_top_k=_read_int(query, "audio_topk", _DEFAULTS.audio_top_k),
            seed=_read_seed(query.get("seed", _RANDOM_SEED)),
        ),
    )


def _read_voice(given: str, voices: Collection[str]) -> str:
    for name in (given, given.removesuffix(_SAVED_VOICE_SUFFIX)):
        if name in voices:
            return name
    raise ConfigError(
        f"voice_prompt must be one of {', '.join(sorted(voices))}, got {given[:128]!r}"
    )


def _read_seed(given: str) -> int | None:
    if given == _RANDOM_SEED:
        return None
    if not _is_whole_number(given):
        raise ConfigError(
            f"seed must be a whole number in 0..{MAX_SEED}, or -1 for a random one, "
            f"got {given[:32]!r}"
        )
    return int(given)


def _read_int(query: Mapping[str, str], name: str, default: int) -> int:
    given = query.get(name)
    if given is None:
        return default
    if not _is_whole_number(given):
        raise ConfigError(f"{name} must be a whole number, got {given[:32]!r}")
    return int(given)


def _is_whole_number(given: str) -> bool:
    return given.isascii() and given.isdecimal() and len(given) <= len(str(MAX_SEED))


def _read_float(query: Mapping[str, str], name: str, default: float) -> float:
    given = query.get(name)
    if given is None:
        return default
    try:
        value = float(given[:32])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, got {given[:32]!r}")
    return value
