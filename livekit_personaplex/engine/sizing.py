"""How many conversations fit, and the fixed sizes of an engine's batches on each device."""

from dataclasses import dataclass

import torch

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.kernels.kv_rings import bytes_per_slot
from livekit_personaplex.model.config import PersonaPlexConfig

GPU_PROMPT_ROWS = 128
"""A voice of 51 steps, silences and a persona of 60 tokens are one batch of a GPU."""
_CPU_PROMPT_ROWS = 16
"""A CPU pays for every row: few at a time keep the calls beside an opening in time."""
_CODEC_SLOT_BYTES = 24 << 20
"""State of Mimi for one slot and its share of what a tick computes with, rounded up."""
RESERVE_BYTES = 2 << 30
"""Left free on a GPU for recordings of the stages and for libraries' workspaces."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Fixed sizes of one engine.

    Attributes:
        num_slots: Conversations at once.
        group_slots: Slots that are stepped as one batch: all on a GPU, which reads the weights
            once for them; one on a CPU, which then computes only for slots that are live.
        prompt_rows: Prompt positions of one batch.
        kv_dtype: Of keys and values.
        slot_bytes: Memory of one slot.
    """

    num_slots: int
    group_slots: int
    prompt_rows: int
    kv_dtype: torch.dtype
    slot_bytes: int


def choose_sizes(
    config: PersonaPlexConfig,
    *,
    device: torch.device,
    kv_dtype: torch.dtype,
    num_slots: int | None,
) -> EngineSizes:
    """Fix an engine's sizes once the weights are loaded.

    Args:
        config: Sizes of the model.
        device: Where state will live; its free memory is asked for on a GPU.
        kv_dtype: Of keys and values.
        num_slots: How many are wanted; None takes as many as fit (on a CPU: one).

    Raises:
        ConfigError: They do not fit; the message says what would.
    """
    is_gpu = device.type == "cuda"
    prompt_rows = GPU_PROMPT_ROWS if is_gpu else _CPU_PROMPT_ROWS
    slot_bytes = bytes_of_slot(config, kv_dtype=kv_dtype, prompt_rows=prompt_rows)
    if is_gpu:
        free_bytes = torch.cuda.mem_get_info(device)[0] - RESERVE_BYTES
        num_slots = _fit_slots(num_slots, slot_bytes=slot_bytes, free_bytes=free_bytes)
    slots = num_slots or 1
    return EngineSizes(slots, slots if is_gpu else 1, prompt_rows, kv_dtype, slot_bytes)


def bytes_of_slot(config: PersonaPlexConfig, *, kv_dtype: torch.dtype, prompt_rows: int) -> int:
    """Memory of one slot: its window of keys and values, and its share of the codec's state."""
    temporal = config.temporal_config
    return _CODEC_SLOT_BYTES + bytes_per_slot(
        layers=temporal.num_hidden_layers,
        heads=temporal.num_attention_heads,
        head_dim=temporal.head_dim,
        capacity=temporal.context + prompt_rows,
        dtype=kv_dtype,
    )


def _fit_slots(wanted: int | None, *, slot_bytes: int, free_bytes: int) -> int:
    """Check or choose a number of slots against free memory."""
    fitting = max(0, free_bytes // slot_bytes)
    if (wanted or 1) > fitting:
        needed_gb, free_gb = (wanted or 1) * slot_bytes / 1e9, free_bytes / 1e9
        raise ConfigError(
            f"{wanted or 1} slots need {needed_gb:.1f} GB beside the weights, but {free_gb:.1f} GB "
            f"are free; {fitting} would fit, and about twice as many with 8-bit keys and values "
            "(--kv fp8)"
        )
    return wanted or int(fitting)
