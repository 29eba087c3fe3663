"""The temporal transformer (Helium): one position per row, keys and values in per-slot rings.

Legend: R rows, E model width.
"""

from dataclasses import dataclass

import torch

from livekit_personaplex.kernels.glue import rms_norm
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.ring_attention import attend_rings, rotate_and_write
from livekit_personaplex.kernels.rotation import rope_tables
from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.layers.gated_blocks import GatedBlock, run_blocks
from livekit_personaplex.model.config import HeliumConfig

_MAX_FUSED_ROWS = 1
"""Measured on an H200, 32 layers: 4.37 ms fused and 4.69 apart at one row, 6.4 and 4.8 at two."""


@dataclass(frozen=True, slots=True)
class TemporalTransformer:
    """Weights and the forward pass; holds no state of any conversation.

    Attributes:
        config: Sizes.
        layers: In order.
        out_norm: ``[E] float32``.
    """

    config: HeliumConfig
    layers: list[GatedBlock]
    out_norm: torch.Tensor

    def forward(self, x: torch.Tensor, rows: Rows, rings: KvRings) -> torch.Tensor:
        """Run every row through all layers, writing its keys and values.

        Args:
            x: ``[R, E]`` summed input embeddings.
            rows: What the rows stand for.
            rings: Of all layers; written in place.

        Returns:
            ``[R, E]`` hidden state after the output norm, what both heads read.
        """
        config = self.config
        cos, sin = rope_tables(
            rows.positions, head_dim=config.head_dim, max_period=config.rope_theta
        )

        def attend(index: int, projected: torch.Tensor) -> torch.Tensor:
            ring = rings.layer(index)
            query = rotate_and_write(projected, cos, sin, rows, ring)
            return attend_rings(query, rows, ring, context=config.context).flatten(1)

        x = run_blocks(
            x, self.layers, attend, eps=config.rms_norm_eps, max_fused_rows=_MAX_FUSED_ROWS
        )
        return rms_norm(x, self.out_norm, config.rms_norm_eps)
