"""Layers of the codec for training: whole clips at once, with the arithmetic of the streaming ones.

Activations are ``[B, T, C]``, channels last, so that every convolution is one matrix product. All
are causal: a convolution sees ``kernel - stride`` inputs of its past (zeros at a clip's start), a
transposed one drops its tail. Each layer says under which name the checkpoint keeps its tensors.

Legend: B clips, T positions, I / O / C channels, K kernel size, S stride, H heads, D head width.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_MAX_PERIOD = 10_000.0


class _Windows(torch.autograd.Function):
    """The last K inputs of every position side by side: ``[B, T, C]`` to ``[B, T, K * C]``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int) -> Tensor:
        ctx.kernel = kernel
        length = x.shape[1]
        padded = F.pad(x, (0, 0, kernel - 1, 0))
        return torch.cat([padded[:, first : first + length] for first in range(kernel)], dim=2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        taps = grads[0].unflatten(2, (ctx.kernel, -1)).unbind(2)
        total = taps[-1].clone()
        for back, tap in enumerate(reversed(taps[:-1]), start=1):
            total[:, :-back] += tap[:, back:]
        return total, None


class CausalConv(nn.Module):
    """A convolution with stride 1, any kernel."""

    stored = "conv.conv"

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        """Draw weights that keep the signal's size, which the usual ones lose over this depth."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel) * _gain(inputs * kernel))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, I]`` to ``[B, T, O]``."""
        kernel = self.weight.shape[2]
        if kernel == 1:
            return F.linear(x, self.weight.squeeze(2), self.bias)
        windows = _Windows.apply(x, kernel)
        return F.linear(windows, self.weight.transpose(1, 2).flatten(1), self.bias)


class StridedConv(nn.Module):
    """A convolution with K = 2S: a block of S inputs and the one before it."""

    stored = "conv.conv"

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Draw the weights."""
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(outputs, inputs, 2 * stride) * _gain(inputs * 2 * stride)
        )
        self.bias: nn.Parameter | None = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, I]`` to ``[B, T / S, O]``."""
        stride = self.weight.shape[2] // 2
        blocks = x.unflatten(1, (-1, stride)).flatten(2)
        earlier = torch.cat((self._before(x, blocks), blocks[:, :-1]), dim=1)
        windows = torch.cat((earlier, blocks), dim=2)
        return F.linear(windows, self.weight.transpose(1, 2).flatten(1), self.bias)

    def _before(self, x: Tensor, blocks: Tensor) -> Tensor:
        """Give the block before the first: silence."""
        return torch.zeros_like(blocks[:, :1])


class Downsample(StridedConv):
    """Two positions to one; the past of a clip's start is its first input."""

    stored = "conv.conv.conv"

    def __init__(self, width: int) -> None:
        """Draw the weights; there is no bias."""
        super().__init__(width, width, 2)
        self.bias = None

    def _before(self, x: Tensor, blocks: Tensor) -> Tensor:
        return x[:, :1].expand(-1, 2, -1).flatten(1).unsqueeze(1)


class TransposedConv(nn.Module):
    """A transposed convolution with K = 2S: an input adds to its own S outputs and the next S."""

    stored = "convtr.convtr"

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Draw the weights."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, 2 * stride) * _gain(2 * inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, I]`` to ``[B, T * S, O]``."""
        inputs, outputs, kernel = self.weight.shape
        parts = F.linear(x, self.weight.permute(2, 1, 0).reshape(kernel * outputs, inputs))
        whole: Tensor = _overlap_add(parts, outputs) + self.bias
        return whole


class Upsample(nn.Module):
    """One position to two, one filter for each channel."""

    stored = "convtr.convtr.convtr"

    def __init__(self, width: int) -> None:
        """Begin as a moving mean."""
        super().__init__()
        self.weight = nn.Parameter(torch.full((width, 1, 4), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, C]`` to ``[B, 2 T, C]``."""
        parts = x.unsqueeze(2) * self.weight.squeeze(1).t()
        return _overlap_add(parts.flatten(2), x.shape[2])


class ResidualBlock(nn.Module):
    """The input plus a convolution to half the width and one back."""

    def __init__(self, channels: int) -> None:
        """Draw the weights; the way back begins small."""
        super().__init__()
        narrow, widen = (
            CausalConv(channels, channels // 2, 3),
            CausalConv(channels // 2, channels, 1),
        )
        with torch.no_grad():
            widen.weight.mul_(0.5)
        self.block = nn.ModuleDict({"1": narrow, "3": widen})

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, C]`` to the same shape."""
        branch: Tensor = self.block["3"](F.elu(self.block["1"](F.elu(x))))
        return x + branch


class TransformerLayer(nn.Module):
    """Attention and a feed-forward layer, each normed before and scaled after."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        """Draw the weights; both branches begin at a tenth."""
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        self.in_proj_weight = nn.Parameter(torch.randn(3 * width, width) * width**-0.5)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.linear1 = nn.Linear(width, hidden, bias=False)
        self.linear2 = nn.Linear(hidden, width, bias=False)
        self.scale1 = nn.Parameter(torch.full((width,), 0.1))
        self.scale2 = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """``[B, T, C]`` to the same shape; ``mask [T, T]`` is True where a row may look."""
        fused = F.linear(self.norm1(x), self.in_proj_weight)
        heads = fused.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        query, key = _rotate(query, *rotation), _rotate(key, *rotation)
        seen = F.scaled_dot_product_attention(query, key, value.to(query.dtype), attn_mask=mask)
        x = x + self.scale1 * self.out_proj(seen.transpose(1, 2).flatten(2))
        branch: Tensor = self.linear2(F.gelu(self.linear1(self.norm2(x))))
        return x + self.scale2 * branch


class Transformer(nn.ModuleList):
    """Layers over positions of 40 ms with the window that the product's ring gives."""

    def __init__(self, *, width: int, heads: int, hidden: int, layers: int, context: int) -> None:
        """Make the layers."""
        super().__init__(TransformerLayer(width, heads, hidden) for _ in range(layers))
        self.head_width, self.context = width // heads, context

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, C]`` to the same shape."""
        rotation, mask = self._tables(x.shape[1], x.device)
        for layer in self:
            x = layer(x, rotation, mask)
        return x

    def _tables(self, length: int, device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Cosines and sines ``[T, D / 2]`` and the mask of a clip.

        A full ring hides the entry that is written next, so the second position of a frame sees
        one further back than the first.
        """
        position = torch.arange(length, device=device)
        pairs = self.head_width // 2
        rate = torch.exp(
            torch.arange(pairs, device=device, dtype=torch.float32)
            * (-math.log(_MAX_PERIOD) / pairs)
        )
        angle = position.float().unsqueeze(1) * rate
        gap = position.unsqueeze(1) - position
        mask = (gap >= 0) & (gap <= self.context - 3 + position.unsqueeze(1) % 2)
        return (angle.cos(), angle.sin()), mask


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (2j, 2j + 1) of ``[B, H, T, D]`` in float32."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


def _overlap_add(parts: Tensor, channels: int) -> Tensor:
    """Add second halves to the next position's first: ``[B, T, 2 S C]`` to ``[B, T S, C]``."""
    own, later = parts.chunk(2, dim=2)
    whole = own + F.pad(later[:, :-1], (0, 0, 1, 0))
    positions: Tensor = whole.unflatten(2, (-1, channels)).flatten(1, 2)
    return positions


def _gain(fan_in: int) -> float:
    return math.sqrt(1.3 / fan_in)
