"""The language model's layers for training: whole sequences at once, float32 weights.

The arithmetic is the product's; the weights lie as training wants them (one table for all 17 rows,
the depformer's inner steps stacked). `lm_names` gives them the checkpoint's names.

Legend: B calls, T columns, E width, H heads; depformer: M frames, N inner steps, D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from examples.demo_model.sizes import CARD, DELAYS, NUM_STEPS, Sizes

_MAX_PERIOD = 10_000.0
_TEXT_STD, _AUDIO_STD = 0.15, 0.05
"""A word must stand out from the 16 codes it is added to."""


class Norm(nn.Module):
    """RMSNorm in float32."""

    def __init__(self, width: int) -> None:
        """Begin at one."""
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., width] float32`` to the same."""
        return F.rms_norm(x, self.alpha.shape, self.alpha, 1e-8)


def rotations(positions: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Give the rotation of every position as complex numbers.

    Args:
        positions: ``[B, T] int64``.
        head_dim: Even.

    Returns:
        ``[B, T, 1, head_dim / 2] complex64``.
    """
    pairs = torch.arange(head_dim // 2, device=positions.device, dtype=torch.float32)
    frequencies = torch.exp(pairs * (-math.log(_MAX_PERIOD) * 2.0 / head_dim))
    angles = positions.to(torch.float32)[:, :, None, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles)


class Block(nn.Module):
    """One temporal layer."""

    def __init__(self, width: int, heads: int, hidden: int, layers: int) -> None:
        """Draw weights; what is added to the stream is scaled down with the depth."""
        super().__init__()
        self.heads = heads
        gain = (2 * layers) ** -0.5
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.in_proj = _matrix(3 * width, width)
        self.out_proj = _matrix(width, width, gain=gain)
        self.linear_in = _matrix(2 * hidden, width)
        self.linear_out = _matrix(width, hidden, gain=gain)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """``[B, T, E] float32`` to the same; ``turn`` from `rotations`."""
        batch, length, width = x.shape
        projected = F.linear(self.norm1(x), self.in_proj)
        projected = projected.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = projected.unbind(2)
        attended = F.scaled_dot_product_attention(
            _rotate(query, turn).transpose(1, 2),
            _rotate(key, turn).transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
        )
        x = x + F.linear(attended.transpose(1, 2).flatten(2), self.out_proj)
        gate, up = F.linear(self.norm2(x), self.linear_in).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.linear_out)


class DepthBlock(nn.Module):
    """One depformer layer over all inner steps at once, each with weights of its own."""

    def __init__(self, width: int, heads: int, hidden: int, layers: int) -> None:
        """Draw weights."""
        super().__init__()
        self.heads = heads
        gain = (2 * layers) ** -0.5
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.in_proj = _matrix(NUM_STEPS, 3 * width, width)
        self.out_proj = _matrix(NUM_STEPS, width, width, gain=gain)
        self.linear_in = _matrix(NUM_STEPS, 2 * hidden, width)
        self.linear_out = _matrix(NUM_STEPS, width, hidden, gain=gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, M, D] float32`` to the same; a step sees itself and those before it."""
        steps, rows, width = x.shape
        projected = torch.bmm(self.norm1(x), self.in_proj.mT)
        projected = projected.view(steps, rows, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 1, 3, 0, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + torch.bmm(attended.permute(2, 0, 1, 3).flatten(2), self.out_proj.mT)
        gate, up = torch.bmm(self.norm2(x), self.linear_in.mT).chunk(2, -1)
        return x + torch.bmm(F.silu(gate) * up, self.linear_out.mT)


class TrainingLm(nn.Module):
    """Temporal transformer, depformer, and a head for the caller's words that training adds."""

    def __init__(self, sizes: Sizes) -> None:
        """Draw weights from torch's generator."""
        super().__init__()
        temporal, depformer = sizes.temporal, sizes.depformer
        self.sizes = sizes
        rows = [sizes.text_card + 1] + [CARD + 1] * (len(DELAYS) - 1)
        starts = torch.tensor([0, *rows[:-1]]).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)
        self.starts: torch.Tensor
        self.tables = nn.Parameter(torch.randn(sum(rows), temporal.width) * _AUDIO_STD)
        with torch.no_grad():
            self.tables[: rows[0]].mul_(_TEXT_STD / _AUDIO_STD)
        width, layers = temporal.width, temporal.layers
        self.blocks = nn.ModuleList(
            Block(width, temporal.heads, temporal.hidden, layers) for _ in range(layers)
        )
        self.out_norm = Norm(width)
        self.text_head = _matrix(sizes.text_card, width)
        self.heard_tap = layers * 5 // 9
        self.heard_norm = Norm(width)
        self.heard_head = _matrix(sizes.text_card, width)
        dim = depformer.width
        self.depth_in = _matrix(NUM_STEPS, dim, width)
        self.depth_text = nn.Parameter(torch.randn(sizes.text_card + 1, dim) * dim**-0.5)
        self.depth_audio = nn.Parameter(torch.randn(NUM_STEPS - 1, CARD + 1, dim) * dim**-0.5)
        self.depth_blocks = nn.ModuleList(
            DepthBlock(dim, depformer.heads, depformer.hidden, depformer.layers)
            for _ in range(depformer.layers)
        )
        self.depth_heads = _matrix(NUM_STEPS, CARD, dim)

    def embed(self, columns: torch.Tensor) -> torch.Tensor:
        """Sum the tables' entries.

        Args:
            columns: ``[B, R, T] int64``; with fewer than 17 rows the rest count as zeros.

        Returns:
            ``[B, T, E] float32``.
        """
        batch, rows, length = columns.shape
        ids = (columns + self.starts[:rows, None]).transpose(1, 2).reshape(-1, rows)
        return F.embedding_bag(ids, self.tables, mode="sum").view(batch, length, -1)

    def trunk(
        self, columns: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the temporal transformer.

        Args:
            columns: ``[B, R, T] int64``.
            positions: ``[B, T] int64``.

        Returns:
            Normed hidden state ``[B, T, E]``, and the middle layer's for `heard_logits`.
        """
        temporal = self.sizes.temporal
        x = self.embed(columns)
        turn = rotations(positions, temporal.width // temporal.heads)
        tapped = x
        for index, block in enumerate(self.blocks):
            x = block(x, turn)
            if index == self.heard_tap:
                tapped = x
        return self.out_norm(x), tapped

    def text_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[B, T, E]`` to ``[B, T, text]``."""
        return F.linear(hidden, self.text_head)

    def heard_logits(self, tapped: torch.Tensor) -> torch.Tensor:
        """``[B, T, E]`` of the middle layer to ``[B, T, text]``: the caller's words."""
        return F.linear(self.heard_norm(tapped), self.heard_head)

    def depth(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Run the depformer with the right tokens given.

        Args:
            hidden: ``[M, E]``.
            targets: ``[M, 9] int64`` text and codes of the column to predict.

        Returns:
            ``[N, M, card]`` logits.
        """
        given = [F.embedding(targets[:, 0], self.depth_text)]
        given += [
            F.embedding(targets[:, step], self.depth_audio[step - 1])
            for step in range(1, NUM_STEPS)
        ]
        inputs = F.linear(hidden, self.depth_in.flatten(0, 1))
        x = inputs.view(len(hidden), NUM_STEPS, -1).transpose(0, 1) + torch.stack(given)
        for block in self.depth_blocks:
            x = block(x)
        return torch.bmm(x, self.depth_heads.mT)


def _rotate(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn pairs ``[B, T, H, head_dim]`` in float32; the dtype stays."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def _matrix(*shape: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * gain * shape[-1] ** -0.5)
