"""A loaded model: everything an engine needs of a checkpoint, on one device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.model.config import PersonaPlexConfig, load_config
from livekit_personaplex.model.hub import resolve_model
from livekit_personaplex.model.lm import LanguageModel
from livekit_personaplex.model.lm_weights import load_language_model
from livekit_personaplex.model.mimi import Mimi, MimiEncoder
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.text import Pieces, TextTokenizer
from livekit_personaplex.model.voice_library import load_voices
from livekit_personaplex.model.voices import Voice
from livekit_personaplex.model.weights import CheckpointReader


class Tokenizer(Pieces, Protocol):
    """Text to token ids and back, token by token."""

    def encode(self, text: str) -> list[int]:
        """Split text into token ids."""


class Voices(Protocol):
    """Voices by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""

    def get(self, name: str) -> Voice:
        """Return a voice; ConfigError, with all names, when there is none of that name."""


@dataclass(frozen=True, slots=True)
class PersonaPlex:
    """Weights, tokenizer and voices.

    Attributes:
        config: Sizes.
        device: Where the weights are.
        dtype: Of the language model; Mimi is float32.
        lm: The language model.
        mimi: The codec.
        tokenizer: Of personas and of the agent's words.
        voices: By name.
    """

    config: PersonaPlexConfig
    device: torch.device
    dtype: torch.dtype
    lm: LanguageModel
    mimi: Mimi
    tokenizer: Tokenizer
    voices: Voices


def load_personaplex(
    source: str, *, device: torch.device, dtype: torch.dtype, voices_dir: Path | None = None
) -> PersonaPlex:
    """Load a checkpoint.

    Args:
        source: A folder, or a hub id.
        device: Where the weights go.
        dtype: Of the language model.
        voices_dir: Folder of the operator's own voices.

    Raises:
        CheckpointError: Files are missing, gated or unreadable, or do not fit one another.
        ConfigError: A voice cannot be used.
    """
    folder = resolve_model(source)
    config = load_config(folder)
    with torch.inference_mode():
        with CheckpointReader(folder / config.mimi_name) as reader:
            mimi = load_mimi(config.mimi_config, reader, device=device)
        with CheckpointReader(folder / config.model_name) as reader:
            lm = load_language_model(config, reader, device=device, dtype=dtype)
        voices = load_voices(
            config,
            folder / config.voices_name,
            voices_dir,
            lambda frames: encode_speech(mimi.encoder, frames, device),
        )
    tokenizer = TextTokenizer(folder / config.tokenizer_name)
    return PersonaPlex(config, device, dtype, lm, mimi, tokenizer, voices)


def encode_speech(
    encoder: MimiEncoder, frames: NDArray[np.float32], device: torch.device
) -> NDArray[np.int64]:
    """Encode a whole recording as a stream of its own. Waits for the device.

    Args:
        encoder: Mimi's.
        frames: ``[F, 1920]`` samples.
        device: Of the encoder.

    Returns:
        ``[8, F]`` codes.
    """
    with torch.inference_mode():
        state = encoder.init_state(1, device)
        advance = torch.ones(1, dtype=torch.bool, device=device)
        samples = torch.from_numpy(frames).to(device)
        codes = [encoder.encode(frame.unsqueeze(0), state, advance) for frame in samples]
        stacked: NDArray[np.int64] = torch.cat(codes).t().cpu().numpy()
        return stacked
