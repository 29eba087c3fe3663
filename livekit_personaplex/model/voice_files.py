"""From the content of one voice file, ``.pt`` or ``.wav``, to a voice.

Legend: F frames, T steps, E model width.
"""

import io
import pickle
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_CODEBOOKS
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.audio_file import VOICE_LOUDNESS_LUFS, read_recording, set_loudness
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.voices import Voice

SpeechEncoder = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""Encodes ``[F, 1920] float32`` frames, the first of a stream, to ``[8, F] int64`` codes."""

MAX_VOICE_S = 30.0
_MAX_STEPS = 1000
_RING_COLUMNS = 4
_UNWRITTEN_TOKEN = -2
"""What the reference has in ring entries that no step has written yet."""

_UNPICKLING_FAULTS = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ImportError,
    AssertionError,
)
"""What loading a broken or crafted file raises; nothing in it is ever run."""


def read_saved_voice(name: str, content: bytes, config: PersonaPlexConfig) -> Voice:
    """Read a ``.pt`` voice: the summed inputs of T steps, and the token ring after them.

    Args:
        name: Name of the voice.
        content: Of the file.
        config: Its sizes must fit the file's.

    Raises:
        ConfigError: It is no such file, was saved for another model, or runs code when loaded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about kinds of files that are refused anyway
            saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except _UNPICKLING_FAULTS as error:
        raise ConfigError(
            f"voice {name} is no saved voice: only plain tensors are loaded ({_first_line(error)})"
        ) from error
    if not isinstance(saved, dict):
        raise ConfigError(f"voice {name}: expected a dict of tensors, got {type(saved).__name__}")
    embeddings, cache = _tensor(name, saved, "embeddings"), _tensor(name, saved, "cache")
    width, rows = config.temporal_config.hidden_size, len(config.delays)
    steps = embeddings.shape[0] if embeddings.ndim else 0
    if not 1 <= steps <= _MAX_STEPS or embeddings.shape != (steps, 1, 1, width):
        raise ConfigError(
            f"voice {name}: embeddings must be [1 to {_MAX_STEPS}, 1, 1, {width}] for this model, "
            f"got {list(embeddings.shape)}"
        )
    if cache.shape != (1, rows, _RING_COLUMNS):
        raise ConfigError(
            f"voice {name}: cache must be [1, {rows}, {_RING_COLUMNS}], got {list(cache.shape)}"
        )
    vectors = embeddings.reshape(steps, width).to(torch.float32).numpy()
    tokens = cache[0].to(torch.int64).numpy()
    if not np.isfinite(vectors).all():
        raise ConfigError(f"voice {name}: embeddings must be finite numbers")
    limits = np.full((rows, 1), config.audio_vocab_size)
    limits[0] = config.text_vocab_size
    if cache.is_floating_point() or (tokens < _UNWRITTEN_TOKEN).any() or (tokens > limits).any():
        raise ConfigError(f"voice {name}: cache must hold token ids of this model")
    return Voice(name, embeddings=vectors, cache=tokens)


def read_spoken_voice(name: str, content: bytes, encode: SpeechEncoder) -> Voice:
    """Read a recording as a voice: 24 kHz mono, -24 LUFS, cut into frames, encoded.

    Args:
        name: Name of the voice.
        content: Of the file.
        encode: Mimi, from the start of a stream.

    Raises:
        ConfigError: It is no recording, silent, too short or too long, or a library to read
            recordings with is not installed.
    """
    what = f"voice {name}"
    try:
        samples = read_recording(io.BytesIO(content), name=what, max_s=MAX_VOICE_S)
        samples = set_loudness(samples, VOICE_LOUDNESS_LUFS, name=what)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} is a recording, which needs soundfile, soxr and pyloudnorm; "
            f"{error.name} is not installed"
        ) from error
    num_frames = -(-len(samples) // FRAME_SAMPLES)
    frames = np.zeros((num_frames, FRAME_SAMPLES), dtype=np.float32)
    frames.reshape(-1)[: len(samples)] = samples
    codes = encode(frames)
    assert codes.shape == (NUM_CODEBOOKS, num_frames), f"{codes.shape=} {num_frames=}"
    return Voice(name, codes=codes)


def _tensor(name: str, saved: dict[object, object], key: str) -> torch.Tensor:
    value = saved.get(key)
    if not isinstance(value, torch.Tensor):
        raise ConfigError(f"voice {name}: expected a tensor {key!r}, got {type(value).__name__}")
    if value.is_sparse or value.is_quantized or value.is_complex() or value.is_meta:
        raise ConfigError(f"voice {name}: {key!r} must be a plain tensor")
    return value


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
