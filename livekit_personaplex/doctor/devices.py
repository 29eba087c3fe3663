"""The devices that engines would run on, and how many conversations fit there."""

from dataclasses import dataclass
from pathlib import Path

import torch

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.engine.sizing import GPU_PROMPT_ROWS, RESERVE_BYTES, bytes_of_slot
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.settings import EngineSettings

REAL_WEIGHTS_BYTES = 16_700_000_000
"""The real checkpoint, for a model whose files are not here yet."""
_MIN_CAPABILITY = (8, 0)
"""Ampere: the first with bfloat16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """What is known of a GPU.

    Attributes:
        device: ``cuda`` or ``cuda:N``.
        name: Its maker's name for it.
        capability: Its CUDA compute capability.
        free_bytes: Memory that is free now.
        total_bytes: All of its memory.
    """

    device: str
    name: str
    capability: tuple[int, int]
    free_bytes: int
    total_bytes: int

    @staticmethod
    def read(device: str) -> "Gpu":
        """Ask CUDA, which has to be there."""
        index = torch.device(device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(index)
        return Gpu(
            device=device,
            name=torch.cuda.get_device_name(index),
            capability=torch.cuda.get_device_capability(index),
            free_bytes=free_bytes,
            total_bytes=total_bytes,
        )


def check_devices(
    each: list[EngineSettings], config: PersonaPlexConfig, weights_bytes: int
) -> list[Finding]:
    """Check every device that PERSONAPLEX_DEVICE names.

    Args:
        each: Settings of the engines.
        config: Sizes of the model.
        weights_bytes: What its weights take in memory.
    """
    findings = []
    for settings in each:
        if settings.device == "cpu":
            findings += _check_cpu(config, weights_bytes)
        elif not torch.cuda.is_available():
            return [*findings, _no_gpu()]
        elif (torch.device(settings.device).index or 0) >= torch.cuda.device_count():
            findings.append(
                Finding(
                    settings.device,
                    "failure",
                    f"this machine has {torch.cuda.device_count()} GPUs, counted from cuda:0",
                    "name those that are there in PERSONAPLEX_DEVICE",
                )
            )
        else:
            findings += judge_gpu(Gpu.read(settings.device), settings, config, weights_bytes)
    return findings


def judge_gpu(
    gpu: Gpu, settings: EngineSettings, config: PersonaPlexConfig, weights_bytes: int
) -> list[Finding]:
    """Say how many conversations fit a GPU, and whether that is what was asked for."""
    what = (
        f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}, "
        f"{_gb(gpu.free_bytes)} of {_gb(gpu.total_bytes)} GB free"
    )
    if gpu.capability < _MIN_CAPABILITY and settings.dtype == "bfloat16":
        advice = "use an NVIDIA GPU of the Ampere generation or later (A10, L4, A100, H100, ...)"
        return [Finding(gpu.device, "failure", f"{what}: too old for bfloat16", advice)]
    bf16, fp8 = (
        _count_slots(gpu.free_bytes, config, weights_bytes, dtype)
        for dtype in (torch.bfloat16, FP8)
    )
    text = f"{what}: {bf16} conversations fit, {fp8} with PERSONAPLEX_KV=fp8"
    fitting = fp8 if settings.kv == "fp8" else bf16
    if fitting >= (settings.slots or 1):
        return [Finding(gpu.device, "ok", text)]
    wanted = f"{settings.slots or 1} are asked for"
    if _count_slots(gpu.total_bytes, config, weights_bytes, torch.bfloat16) > bf16:
        advice = "something else uses this GPU: nvidia-smi says what; end it, or take another GPU"
    else:
        advice = "ask for fewer PERSONAPLEX_SLOTS, set PERSONAPLEX_KV=fp8, or take a larger GPU"
    return [Finding(gpu.device, "failure", f"{text}; {wanted}", advice)]


def _check_cpu(config: PersonaPlexConfig, weights_bytes: int) -> list[Finding]:
    free_bytes = _free_memory_bytes()
    slots = _count_slots(free_bytes, config, weights_bytes, torch.float32)
    text = f"{_gb(free_bytes)} GB of memory free: {slots} conversations fit"
    if weights_bytes < REAL_WEIGHTS_BYTES // 4:
        state, advice = "ok", ""
    else:
        state, advice = "warning", "a CPU cannot run the real model in real time: use an NVIDIA GPU"
    if slots < 1:
        state, advice = "failure", "free some memory, or use a smaller model"
    return [Finding("cpu", state, text, advice)]  # type: ignore[arg-type]


def _no_gpu() -> Finding:
    if torch.version.cuda is None:
        text = f"torch {torch.__version__} is built without CUDA"
        advice = "install torch for CUDA from https://pytorch.org, or set PERSONAPLEX_DEVICE=cpu"
    else:
        text = f"no NVIDIA GPU can be used (torch is built for CUDA {torch.version.cuda})"
        advice = (
            "see that nvidia-smi shows the GPU, that the driver supports this CUDA, and that a "
            "container was started with its GPUs; or set PERSONAPLEX_DEVICE=cpu"
        )
    return Finding("gpu", "failure", text, advice)


def _count_slots(
    free_bytes: int, config: PersonaPlexConfig, weights_bytes: int, dtype: torch.dtype
) -> int:
    slot_bytes = bytes_of_slot(config, kv_dtype=dtype, prompt_rows=GPU_PROMPT_ROWS)
    return max(0, (free_bytes - RESERVE_BYTES - weights_bytes) // slot_bytes)


def _free_memory_bytes() -> int:
    """Memory of this machine that programs can have, as Linux counts it."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f}"
