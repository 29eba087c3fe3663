"""The second stage: agents' codes to audio. Needs the codec of a model and nothing else of it.

Legend: B rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_CODEBOOKS, NUM_TOKEN_ROWS
from livekit_personaplex.engine.core import find_device, load_model
from livekit_personaplex.engine.replay import Replay
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.config import load_config
from livekit_personaplex.model.hub import resolve_model
from livekit_personaplex.model.mimi import MimiDecoder, MimiState
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.random_model import parse_random_name
from livekit_personaplex.model.weights import CheckpointReader
from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.settings import EngineSettings

GPU_ROWS = 64
CPU_ROWS = 4
"""Streams decoded as one batch: a row needs some 10 MB of state."""


@dataclass(slots=True)
class Decoding:
    """One job of this stage.

    Attributes:
        job: What was asked for.
        codes: ``[8, N] int64`` with N at least 1.
        caller: ``[n] int16`` whom the agent talked to, as long as the audio is to be.
        frames: Audio so far, ``[1920] int16`` each.
    """

    job: Job
    codes: NDArray[np.int64]
    caller: NDArray[np.int16]
    frames: list[NDArray[np.int16]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether every frame is decoded."""
        return len(self.frames) >= int(self.codes.shape[1])


class DecoderLanes:
    """Rows of a decoder, for `keep_busy`."""

    def __init__(self, decoder: MimiDecoder, device: torch.device, *, num_rows: int) -> None:
        """Make state and static tensors, ``[B, ...]``."""
        self._decoder = decoder
        with torch.inference_mode():
            self._state: MimiState = decoder.init_state(num_rows, device)
            self._codes = torch.zeros(num_rows, NUM_CODEBOOKS, dtype=torch.int64, device=device)
            self._mask = torch.zeros(num_rows, dtype=torch.bool, device=device)
            self._pcm = torch.zeros(num_rows, FRAME_SAMPLES, dtype=torch.int16, device=device)
            self._run = Replay(self._decode, device)

    @property
    def num_slots(self) -> int:
        """Streams at a time."""
        return self._mask.shape[0]

    @property
    def codebook_size(self) -> int:
        """Codes are less."""
        return int(self._decoder.config.codebook_size)

    def begin(self, slot: int, work: Decoding) -> None:
        """Put a row to the start of a stream."""
        with torch.inference_mode():
            self._state.reset(slot)

    def advance(self, busy: Mapping[int, Decoding]) -> None:
        """Decode a frame of every stream. Waits for the device."""
        codes = torch.zeros(self._codes.shape, dtype=torch.int64)
        mask = torch.zeros(self._mask.shape, dtype=torch.bool)
        for slot, work in busy.items():
            codes[slot] = torch.from_numpy(work.codes[:, len(work.frames)])
            mask[slot] = True
        with torch.inference_mode():
            self._codes.copy_(codes)
            self._mask.copy_(mask)
            self._run()
            pcm = self._pcm.cpu().numpy()
        for slot, work in busy.items():
            work.frames.append(pcm[slot].copy())

    def end(self, slot: int) -> None:
        """Leave the row as it is: it begins anew."""

    def _decode(self) -> None:
        spoken = self._decoder.decode(self._codes, self._state, self._mask)
        self._pcm.copy_((spoken * 32768.0).round().clamp(-32768.0, 32767.0))


def load_decoder(settings: EngineSettings, *, max_rows: int) -> DecoderLanes:
    """Load the decoder of a model's codec. Blocks.

    Args:
        settings: Of the engine; without slots, `GPU_ROWS` or `CPU_ROWS`.
        max_rows: No more rows than this: idle ones cost time.

    Raises:
        CheckpointError: The codec's file cannot be used.
        ConfigError: The device cannot be used.
    """
    device = find_device(settings.device)
    num_rows = settings.slots or (GPU_ROWS if device.type == "cuda" else CPU_ROWS)
    if parse_random_name(settings.model) is not None:
        decoder = load_model(settings).mimi.decoder
    else:
        folder = resolve_model(settings.model)
        config = load_config(folder)
        with torch.inference_mode(), CheckpointReader(folder / config.mimi_name) as reader:
            decoder = load_mimi(config.mimi_config, reader, device=device).decoder
    return DecoderLanes(decoder, device, num_rows=min(num_rows, max_rows))


def read_codes(path: Path, *, codebook_size: int) -> tuple[NDArray[np.int64], dict[str, str]]:
    """Read a file of codes: ``[8, N]`` of the agent, and its metadata.

    Args:
        path: As the first stage writes it.
        codebook_size: Codes are less.

    Raises:
        ConfigError: It holds no codes.
    """
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tokens = file.get_tensor("tokens")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read as a file of codes: {error}") from None
    if tokens.ndim != 2 or tokens.shape[0] != NUM_TOKEN_ROWS or tokens.shape[1] == 0:
        raise ConfigError(
            f"{path}: expected tokens of {NUM_TOKEN_ROWS} rows, got the shape {tokens.shape}"
        )
    codes: NDArray[np.int64] = tokens[1:].astype(np.int64)
    if codes.min() < 0 or codes.max() >= codebook_size:
        raise ConfigError(
            f"{path}: codes must lie in 0..{codebook_size - 1}, got {codes.min()}..{codes.max()}"
        )
    return codes, metadata
