"""How ring attention cuts its work on each GPU, pinned in ``attention_tuning.json``.

Tuning is measured by ``livekit-personaplex bench --tune`` and never done while calls run: another
cut sums in another order, so low bits would change with it.
"""

import json
from dataclasses import dataclass
from importlib.resources import files

import torch

from livekit_personaplex.kernels.fp8 import FP8


@dataclass(frozen=True, slots=True)
class AttentionTuning:
    """One cut.

    Attributes:
        block_keys: Keys loaded at once.
        range_keys: Keys of one program, a multiple of ``block_keys``.
        num_warps: Warps of one program.
        num_stages: Depth of the load pipeline.
    """

    block_keys: int
    range_keys: int
    num_warps: int
    num_stages: int


_FEW_SLOTS = 8
"""Up to this many slots latency counts, above it memory bandwidth."""


def attention_tuning(
    device: torch.device, kv_dtype: torch.dtype, num_slots: int
) -> AttentionTuning:
    """Look up the cut for a device, or the one that is used where none was measured.

    Args:
        device: CPU gets the default, which it does not use.
        kv_dtype: Dtype of the rings.
        num_slots: Slots of the engine; another number may mean another cut and other low bits.
    """
    text = files("livekit_personaplex.kernels").joinpath("attention_tuning.json").read_text()
    table = json.loads(text)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "default"
    entry = table.get(name, table["default"])
    kind = "fp8" if kv_dtype == FP8 else "wide"
    few = f"{kind}_few_slots"
    return AttentionTuning(**entry[few if num_slots <= _FEW_SLOTS and few in entry else kind])
