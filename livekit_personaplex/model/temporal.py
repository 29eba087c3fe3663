"""The temporal transformer (Helium): one position per row, keys and values in per-slot rings.

Legend: R rows, E model width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.glue import add_rms_norm, rms_norm, silu_gate
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.ring_attention import attend_rings, rotate_and_write
from livekit_personaplex.kernels.rotation import rope_tables
from livekit_personaplex.kernels.rows import Rows
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


class TemporalTransformer:
    """Weights and the forward pass; holds no state of any conversation."""

    def __init__(
        self, config: HeliumConfig, layers: list[TemporalLayer], out_norm: torch.Tensor
    ) -> None:
        """Args: ``out_norm`` is ``[E] float32``; ``layers`` in order."""
        self.config = config
        self.layers = layers
        self.out_norm = out_norm
        self._next_norms = [layer.norm1 for layer in layers[1:]] + [out_norm]

    def forward(self, x: torch.Tensor, rows: Rows, rings: KvRings) -> torch.Tensor:
        """Run every row through all layers, writing its keys and values.

        Args:
            x: ``[R, E]`` summed input embeddings.
            rows: What the rows stand for.
            rings: Of all layers; written in place.

        Returns:
            ``[R, E]`` hidden state after the output norm, what both heads read.
        """
        config, eps = self.config, self.config.rms_norm_eps
        cos, sin = rope_tables(
            rows.positions, head_dim=config.head_dim, max_period=config.rope_theta
        )
        normed = rms_norm(x, self.layers[0].norm1, eps)
        for index, layer in enumerate(self.layers):
            ring = rings.layer(index)
            query = rotate_and_write(F.linear(normed, layer.in_proj), cos, sin, rows, ring)
            seen = attend_rings(query, rows, ring, context=config.context)
            branch = F.linear(seen.flatten(1), layer.out_proj)
            x, normed = add_rms_norm(x, branch, layer.norm2, eps)
            branch = F.linear(silu_gate(F.linear(normed, layer.linear_in)), layer.linear_out)
            x, normed = add_rms_norm(x, branch, self._next_norms[index], eps)
        return normed
