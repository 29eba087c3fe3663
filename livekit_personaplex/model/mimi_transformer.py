"""The transformers of Mimi: two new positions a frame over per-slot rings of keys and values.

Source: NVIDIA/personaplex modules/transformer.py.
Legend: B slots, E width, H heads, D head dim, C context (ring length), N stored ring entries.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.fused_linear import (
    layer_norm_linear,
    layer_norm_linear_gelu,
    linear_add,
)
from livekit_personaplex.kernels.rotation import rope_tables
from livekit_personaplex.model.config import PersonaPlexMimiConfig

POSITIONS_PER_FRAME = 2
_MAX_FUSED_STREAMS = 8
"""Measured on an H200, 8 layers: 0.16 ms fused and 0.37 apart for one stream, 0.33 and 0.54 for
eight, 0.97 and 0.66 for 32."""
_ENTRY_ALIGNMENT = 16
"""Entries are padded to this, as GPU attention wants its mask; the surplus is never visible."""


@dataclass(frozen=True, slots=True)
class MimiTransformerLayer:
    """Weights of one layer, float32; layer scales are folded into the projections they follow.

    Attributes:
        norm1_weight: ``[E]``.
        norm1_bias: ``[E]``.
        in_proj: ``[3E, E]``, query, key and value stacked.
        out_proj: ``[E, E]``, scaled.
        norm2_weight: ``[E]``.
        norm2_bias: ``[E]``.
        linear1: ``[hidden, E]``.
        linear2: ``[E, hidden]``, scaled.
    """

    norm1_weight: torch.Tensor
    norm1_bias: torch.Tensor
    in_proj: torch.Tensor
    out_proj: torch.Tensor
    norm2_weight: torch.Tensor
    norm2_bias: torch.Tensor
    linear1: torch.Tensor
    linear2: torch.Tensor


Attend = Callable[[torch.Tensor], torch.Tensor]
"""``[2B, 3E]`` query, key and value to ``[2B, E]``, what attention gathered."""


def ring_entries(config: PersonaPlexMimiConfig) -> int:
    """N: stored entries of one ring."""
    return -(-config.context // _ENTRY_ALIGNMENT) * _ENTRY_ALIGNMENT


class MimiTransformer:
    """Weights and the forward pass; holds no state of any stream."""

    def __init__(
        self,
        config: PersonaPlexMimiConfig,
        layers: list[MimiTransformerLayer],
        *,
        device: torch.device,
    ) -> None:
        """Precompute what only depends on the sizes."""
        self._config = config
        self._layers = layers
        self._biases = _attention_biases(config.context, ring_entries(config)).to(device)
        self._steps = torch.arange(POSITIONS_PER_FRAME, device=device)

    def forward(
        self, x: torch.Tensor, rings: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Run the two positions of a frame through all layers.

        New keys and values overwrite the two oldest entries of every row, also of rows that do not
        advance: the next call would overwrite these before it reads them, so no trace is left.

        Args:
            x: ``[B, 2, E] float32``.
            rings: ``[L, B, N, 2, H, D] float32`` keys and values, written in place.
            positions: ``[B] int64`` position of each row's first vector.

        Returns:
            ``[B, 2, E] float32``.
        """
        if x.is_cuda:
            return self._forward_gpu(x, rings, positions)
        config = self._config
        batch, num_steps, width = x.shape
        heads, head_dim = config.num_attention_heads, config.head_dim
        absolute = positions.unsqueeze(1) + self._steps
        rotation = torch.complex(
            *rope_tables(absolute, head_dim=head_dim, max_period=config.rope_theta)
        ).view(batch, num_steps, 1, 1, head_dim // 2)
        entries = self._entries(absolute, rings.shape[2])
        biases = self._biases.index_select(0, self._phases(positions))
        for layer, ring in zip(self._layers, rings.unbind(0), strict=True):
            normed = F.layer_norm(
                x, (width,), layer.norm1_weight, layer.norm1_bias, config.norm_eps
            )
            qkv = F.linear(normed, layer.in_proj).view(batch, num_steps, 3, heads, head_dim)
            _rotate_pairs(qkv[:, :, :2], rotation)
            ring.view(-1, 2 * width).index_copy_(0, entries, qkv[:, :, 1:].view(-1, 2 * width))
            seen = F.scaled_dot_product_attention(
                qkv[:, :, 0].transpose(1, 2),
                ring[:, :, 0].transpose(1, 2),
                ring[:, :, 1].transpose(1, 2),
                attn_mask=biases,
            )
            x = x + F.linear(seen.transpose(1, 2).reshape(batch, num_steps, width), layer.out_proj)
            normed = F.layer_norm(
                x, (width,), layer.norm2_weight, layer.norm2_bias, config.norm_eps
            )
            x = x + F.linear(F.gelu(F.linear(normed, layer.linear1)), layer.linear2)
        return x

    def _forward_gpu(
        self, x: torch.Tensor, rings: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """The same with fewer launches; few rows have their norms inside the products."""
        from livekit_personaplex.kernels.gpu.mimi_attention import attend_pair

        config, shape = self._config, x.shape
        cos, sin = rope_tables(
            positions.unsqueeze(1) + self._steps,
            head_dim=config.head_dim,
            max_period=config.rope_theta,
        )
        run_layer = _fused_layer if shape[0] <= _MAX_FUSED_STREAMS else _plain_layer
        x = x.reshape(-1, shape[2])
        for layer, ring in zip(self._layers, rings.unbind(0), strict=True):

            def attend(projected: torch.Tensor, ring: torch.Tensor = ring) -> torch.Tensor:
                return attend_pair(projected, cos, sin, positions, ring, context=config.context)

            x = run_layer(x, layer, attend, config.norm_eps)
        return x.view(shape)

    def _entries(self, absolute: torch.Tensor, entries_per_row: int) -> torch.Tensor:
        """Where the new positions go in the rows' rings laid end to end: ``[2B] int64``."""
        rows = torch.arange(len(absolute), device=absolute.device).unsqueeze(1)
        return (absolute % self._config.context + rows * entries_per_row).flatten()

    def _phases(self, positions: torch.Tensor) -> torch.Tensor:
        """Which of the masks a row needs: one for each filling, then one for each turn."""
        context = self._config.context
        return torch.minimum(positions, positions % context + context)


def _fused_layer(
    x: torch.Tensor, layer: MimiTransformerLayer, attend: Attend, eps: float
) -> torch.Tensor:
    projected = layer_norm_linear(x, layer.norm1_weight, layer.norm1_bias, eps, layer.in_proj)
    x = linear_add(attend(projected), layer.out_proj, x)
    hidden = layer_norm_linear_gelu(x, layer.norm2_weight, layer.norm2_bias, eps, layer.linear1)
    return linear_add(hidden, layer.linear2, x)


def _plain_layer(
    x: torch.Tensor, layer: MimiTransformerLayer, attend: Attend, eps: float
) -> torch.Tensor:
    width = x.shape[1:]
    normed = F.layer_norm(x, width, layer.norm1_weight, layer.norm1_bias, eps)
    x = x + F.linear(attend(F.linear(normed, layer.in_proj)), layer.out_proj)
    normed = F.layer_norm(x, width, layer.norm2_weight, layer.norm2_bias, eps)
    return x + F.linear(F.gelu(F.linear(normed, layer.linear1)), layer.linear2)


def _rotate_pairs(x: torch.Tensor, rotation: torch.Tensor) -> None:
    """Rotate the pairs (2j, 2j + 1) of queries and keys in place, as complex numbers."""
    torch.view_as_complex(x.unflatten(-1, (-1, 2))).mul_(rotation)


def _attention_biases(context: int, num_entries: int) -> torch.Tensor:
    """Masks for every state a ring can be in, ``[2C, 1, 2, N] float32`` of 0 and -inf.

    Mask p < C is for a first new position p; mask C + r for any p >= C with p mod C = r.

    Quirk: the reference writes both new keys, then takes the entry that its next write will
    replace for a future position, so a full window is one position short
    (test_a_full_ring_hides_the_entry_that_is_written_next).
    """
    first = torch.arange(2 * context).view(-1, 1, 1)
    query = first + torch.arange(POSITIONS_PER_FRAME).view(1, -1, 1)
    entry = torch.arange(num_entries).view(1, 1, -1)
    newest = first + POSITIONS_PER_FRAME - 1
    held = newest - (newest - entry) % context
    oldest_visible = (newest + 2 - context).clamp(min=0)
    visible = (entry < context) & (held >= oldest_visible) & (held <= query)
    biases = torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))
    return biases.unsqueeze(1)
