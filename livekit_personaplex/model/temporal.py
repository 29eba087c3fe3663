"""The temporal transformer (Helium): one position per row, keys and values in per-slot rings.

Legend: R rows, E model width, H heads, D head dim.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.ring_attention import attend_rings, write_rings
from livekit_personaplex.layers.gated_ffn import gated_ffn
from livekit_personaplex.layers.norm import rms_norm
from livekit_personaplex.layers.rope import apply_rope, rope_tables
from livekit_personaplex.model.config import HeliumConfig


@dataclass(frozen=True, slots=True)
class TemporalLayer:
    """Weights of one layer; norms in float32, the rest in the model's dtype.

    Attributes:
        norm1: ``[E]``.
        in_proj: ``[3E, E]``, query, key and value stacked.
        out_proj: ``[E, E]``.
        norm2: ``[E]``.
        linear_in: ``[2 * hidden, E]``.
        linear_out: ``[E, hidden]``.
    """

    norm1: torch.Tensor
    in_proj: torch.Tensor
    out_proj: torch.Tensor
    norm2: torch.Tensor
    linear_in: torch.Tensor
    linear_out: torch.Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """Which conversation and position each row of a batch stands for.

    Attributes:
        slots: ``[R] int64``.
        positions: ``[R] int64`` absolute positions.
        mask: ``[R] bool``; False rows leave no trace.
    """

    slots: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor


class TemporalTransformer:
    """Weights and the forward pass; holds no state of any conversation."""

    def __init__(
        self, config: HeliumConfig, layers: list[TemporalLayer], out_norm: torch.Tensor
    ) -> None:
        """Args: ``out_norm`` is ``[E] float32``; ``layers`` in order."""
        self.config = config
        self.layers = layers
        self.out_norm = out_norm

    def forward(
        self, x: torch.Tensor, rows: Rows, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Run every row through all layers, writing its keys and values.

        Args:
            x: ``[R, E]`` summed input embeddings.
            rows: What the rows stand for.
            keys: ``[L, S, H, C, D]``, written in place.
            values: Like ``keys``.

        Returns:
            ``[R, E]`` hidden state after the output norm, what both heads read.
        """
        config = self.config
        cos, sin = rope_tables(
            rows.positions, head_dim=config.head_dim, max_period=config.rope_theta
        )
        for index, layer in enumerate(self.layers):
            normed = rms_norm(x, layer.norm1, config.rms_norm_eps)
            heads = F.linear(normed, layer.in_proj).view(
                x.shape[0], 3, config.num_attention_heads, config.head_dim
            )
            query = apply_rope(heads[:, 0], cos, sin)
            key = apply_rope(heads[:, 1], cos, sin)
            write_rings(
                keys[index], values[index], key, heads[:, 2], rows.slots, rows.positions, rows.mask
            )
            seen = attend_rings(
                query,
                keys[index],
                values[index],
                rows.slots,
                rows.positions,
                rows.mask,
                context=config.context,
            )
            x = x + F.linear(seen.flatten(1), layer.out_proj)
            normed = rms_norm(x, layer.norm2, config.rms_norm_eps)
            x = x + gated_ffn(normed, layer.linear_in, layer.linear_out)
        return rms_norm(x, self.out_norm, config.rms_norm_eps)
