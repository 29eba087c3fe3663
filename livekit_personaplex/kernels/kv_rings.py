"""Keys and values of the temporal transformer, a ring per slot and head.

A ring of capacity C holds position p at entry p mod C. With 8-bit floats every vector has a scale
of its own beside it, so that its largest element uses the whole range of the format.

Legend: L layers, S slots, H heads, C capacity, D head dim.
"""

from dataclasses import dataclass

import torch

from livekit_personaplex.kernels.attention_tuning import AttentionTuning, attention_tuning
from livekit_personaplex.kernels.fp8 import FP8


@dataclass(frozen=True, slots=True)
class KvRings:
    """Rings of all layers, or of one (then without the first axis).

    Attributes:
        keys: ``[L, S, H, C, D]``.
        values: Like ``keys``.
        key_scales: ``[L, S, H, C] float32`` with 8-bit rings, else None.
        value_scales: Like ``key_scales``.
        tuning: How a GPU cuts the attention over them.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None
    value_scales: torch.Tensor | None
    tuning: AttentionTuning

    @staticmethod
    def create(shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> "KvRings":
        """Allocate zeroed rings; ``shape`` is ``[L, S, H, C, D]``."""
        has_scales = dtype == FP8

        def scales() -> torch.Tensor | None:
            return torch.zeros(shape[:-1], device=device) if has_scales else None

        def ring() -> torch.Tensor:
            storage = torch.uint8 if has_scales else dtype
            return torch.zeros(shape, dtype=storage, device=device).view(dtype)

        tuning = attention_tuning(device, dtype, shape[1])
        return KvRings(ring(), ring(), scales(), scales(), tuning)

    def layer(self, index: int) -> "KvRings":
        """Views of one layer's rings."""
        return KvRings(
            self.keys[index],
            self.values[index],
            None if self.key_scales is None else self.key_scales[index],
            None if self.value_scales is None else self.value_scales[index],
            self.tuning,
        )

    def view(self, group: slice) -> "KvRings":
        """Views of a contiguous range of slots, all layers."""
        return KvRings(
            self.keys[:, group],
            self.values[:, group],
            None if self.key_scales is None else self.key_scales[:, group],
            None if self.value_scales is None else self.value_scales[:, group],
            self.tuning,
        )


def bytes_per_slot(
    *, layers: int, heads: int, head_dim: int, capacity: int, dtype: torch.dtype
) -> int:
    """Memory that one conversation's rings take."""
    vector_bytes = head_dim * dtype.itemsize + (4 if dtype == FP8 else 0)
    return 2 * layers * heads * capacity * vector_bytes
