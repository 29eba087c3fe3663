"""A model of the real one's size with random weights, named like a checkpoint: ``random:7b``.

Its speech and words are noise. It is there to measure speed, memory and exactness at full size
without the gated checkpoint; ``random:7b:SEED`` gives other weights.
"""

import numpy as np
import torch

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.lm_weights import lm_tensor_shapes, load_language_model
from livekit_personaplex.model.mimi_names import mimi_tensor_shapes
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.personaplex import PersonaPlex
from livekit_personaplex.model.random_source import RandomSource
from livekit_personaplex.model.voices import Voice

PREFIX = "random:"
VOICE_NAMES = ("RANDOM0", "RANDOM1")
VOICE_STEPS = 51
"""Embeddings of one voice: as many as the real checkpoint's voices have."""

_FIRST_WORD_ID = 4


def parse_random_name(source: str) -> int | None:
    """Give the seed of a ``random:7b[:SEED]`` name, None for any other name.

    Raises:
        ConfigError: It begins with ``random:`` and is none.
    """
    if not source.startswith(PREFIX):
        return None
    size, _, seed = source.removeprefix(PREFIX).partition(":")
    if size != "7b" or not (seed == "" or (seed.isascii() and seed.isdecimal())):
        raise ConfigError(f"a random model is named random:7b or random:7b:SEED, got {source!r}")
    return int(seed or 0)


def random_personaplex(seed: int, *, device: torch.device, dtype: torch.dtype) -> PersonaPlex:
    """Make a full-size model in place.

    Args:
        seed: Of the weights.
        device: Where they are made.
        dtype: Of the language model.
    """
    config = PersonaPlexConfig()
    source = random_source(config, seed)
    with torch.inference_mode():
        lm = load_language_model(config, source, device=device, dtype=dtype)
        mimi = load_mimi(config.mimi_config, source, device=device)
    return PersonaPlex(
        config, device, dtype, lm, mimi, NumberTokenizer(config), RandomVoices(config, seed)
    )


def random_source(config: PersonaPlexConfig, seed: int) -> RandomSource:
    """Describe every tensor of both files of a checkpoint, with 8 stored inner-step sets."""
    shapes = {**lm_tensor_shapes(config, stored_steps=8), **mimi_tensor_shapes(config.mimi_config)}
    return RandomSource(shapes, num_layers=config.temporal_config.num_hidden_layers, seed=seed)


class NumberTokenizer:
    """Words of a vocabulary that was never made: a token is written as its number."""

    def __init__(self, config: PersonaPlexConfig) -> None:
        """Cover the text vocabulary of ``config``."""
        self._size = config.text_vocab_size

    def encode(self, text: str) -> list[int]:
        """Give every word some token."""
        span = self._size - _FIRST_WORD_ID
        return [_FIRST_WORD_ID + sum(word.encode()) * 7919 % span for word in text.split()]

    def piece(self, token: int) -> str:
        """Write the token's number after a space."""
        return f" {token}" if token >= _FIRST_WORD_ID else ""


class RandomVoices:
    """Two voices of noise."""

    def __init__(self, config: PersonaPlexConfig, seed: int) -> None:
        """Draw them."""
        rng = np.random.default_rng(seed)
        width, rows = config.temporal_config.hidden_size, len(config.delays)
        self._voices = {
            name: Voice(
                name,
                embeddings=rng.standard_normal((VOICE_STEPS, width), dtype=np.float32),
                cache=rng.integers(4, config.audio_vocab_size, (rows, 4)),
            )
            for name in VOICE_NAMES
        }

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return VOICE_NAMES

    def get(self, name: str) -> Voice:
        """Return a voice.

        Raises:
            ConfigError: There is none of that name.
        """
        if name not in self._voices:
            raise ConfigError(f"unknown voice {name!r}; there are {', '.join(self._voices)}")
        return self._voices[name]
