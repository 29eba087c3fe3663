"""How one conversation draws its tokens. Plain values, validated once; no torch, no livekit."""

import math
import reprlib
from dataclasses import dataclass, fields

from livekit_personaplex.errors import ConfigError

MAX_SEED = 2**63 - 1
MAX_TEMPERATURE = 10.0
MIN_TEMPERATURE = 1e-6
"""Less is as good as greedy, and would in the end divide logits to infinity."""
MAX_TOP_K = 32_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Sampling of one session. Defaults are those of NVIDIA's reference.

    Attributes:
        greedy: Take the likeliest token always; temperatures and top-k are then not used.
        text_temperature: Temperature of the text token; 0, and less than `MIN_TEMPERATURE`, means
            greedy for text.
        text_top_k: How many of the likeliest text tokens are drawn from.
        audio_temperature: The same of the audio tokens.
        audio_top_k: How many of the likeliest audio tokens are drawn from.
        seed: One seed gives one conversation, whoever else is talking. None: a random one is
            chosen by the engine and reported.
    """

    greedy: bool = False
    text_temperature: float = 0.7
    text_top_k: int = 25
    audio_temperature: float = 0.8
    audio_top_k: int = 250
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.greedy, bool):
            raise ConfigError(f"greedy must be true or false, got {reprlib.repr(self.greedy)}")
        for name in ("text_temperature", "audio_temperature"):
            _check_temperature(name, getattr(self, name))
        for name in ("text_top_k", "audio_top_k"):
            _check_int(name, getattr(self, name), low=1, high=MAX_TOP_K)
        if self.seed is not None:
            _check_int("seed", self.seed, low=0, high=MAX_SEED)


SAMPLING_FIELDS = tuple(field.name for field in fields(Sampling))


def _check_temperature(name: str, value: object) -> None:
    # Compared before anything makes a float of it: a whole number may be too large for one.
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not -math.inf < value < math.inf
    ):
        raise ConfigError(f"{name} must be a finite number, got {reprlib.repr(value)}")
    if not 0.0 <= value <= MAX_TEMPERATURE:
        raise ConfigError(f"{name} must lie in 0..{MAX_TEMPERATURE:g}, got {reprlib.repr(value)}")


def _check_int(name: str, value: object, *, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number, got {reprlib.repr(value)}")
    if not low <= value <= high:
        raise ConfigError(f"{name} must lie in {low}..{high}, got {reprlib.repr(value)}")
