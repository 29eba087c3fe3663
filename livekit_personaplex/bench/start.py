"""From a checkpoint on disk to an engine that takes calls: time, and memory on the way."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.lm_weights import lm_tensor_shapes
from livekit_personaplex.model.mimi_names import mimi_tensor_shapes
from livekit_personaplex.model.random_model import VOICE_STEPS
from livekit_personaplex.model.random_source import RandomSource
from livekit_personaplex.settings import EngineSettings

_GB = 1e9
_STORED_STEPS = 16


@dataclass(frozen=True, slots=True)
class StartFigures:
    """One start.

    Attributes:
        checkpoint_gb: Size of the model's file.
        ready_s: From nothing loaded to an engine that takes calls.
        slots: Of that engine.
        peak_gb: Most GPU memory that tensors took on the way; 0 on a CPU.
        final_gb: What they take in the end.
    """

    checkpoint_gb: float
    ready_s: float
    slots: int
    peak_gb: float
    final_gb: float

    def as_json(self) -> dict[str, float | int]:
        """Give the figures as the results file keeps them."""
        return asdict(self)


def write_random_checkpoint(
    folder: Path, tokenizer: Path, *, device: torch.device, config: PersonaPlexConfig
) -> None:
    """Write a checkpoint of random weights in the real one's layout.

    Args:
        folder: Where; made if it is missing.
        tokenizer: Any SentencePiece model, copied.
        device: Where tensors are drawn.
        config: Sizes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    layers = config.temporal_config.num_hidden_layers
    shapes = lm_tensor_shapes(config, stored_steps=_STORED_STEPS)
    _save(folder / config.model_name, shapes, layers, torch.bfloat16, device)
    mimi = mimi_tensor_shapes(config.mimi_config)
    _save(folder / config.mimi_name, mimi, layers, torch.float32, device)
    (folder / config.tokenizer_name).write_bytes(tokenizer.read_bytes())
    voices = folder / "voices"
    voices.mkdir(exist_ok=True)
    width, rows = config.temporal_config.hidden_size, len(config.delays)
    highest = min(config.text_vocab_size, config.audio_vocab_size)
    torch.save(
        {
            "embeddings": torch.randn(VOICE_STEPS, 1, 1, width).to(torch.bfloat16),
            "cache": torch.randint(4, highest, (1, rows, 4)),
        },
        voices / "RANDOM0.pt",
    )


def measure_start(settings: EngineSettings) -> StartFigures:
    """Load the checkpoint that ``settings`` name and make an engine of it.

    Args:
        settings: Its model is a folder.
    """
    is_gpu = settings.device == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    began_s = time.perf_counter()
    core = EngineCore.load(settings)
    if is_gpu:
        torch.cuda.synchronize()
    ready_s = time.perf_counter() - began_s
    size = (Path(settings.model) / core.model.config.model_name).stat().st_size
    return StartFigures(
        checkpoint_gb=round(size / _GB, 2),
        ready_s=round(ready_s, 2),
        slots=core.num_slots,
        peak_gb=round(torch.cuda.max_memory_allocated() / _GB, 2) if is_gpu else 0.0,
        final_gb=round(torch.cuda.memory_allocated() / _GB, 2) if is_gpu else 0.0,
    )


def _save(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    layers: int,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    source = RandomSource(shapes, num_layers=layers, seed=0)
    save_file({name: source.read(name, device, dtype).cpu() for name in shapes}, path)
