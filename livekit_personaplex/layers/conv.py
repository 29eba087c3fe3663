"""Causal convolutions over a stream that arrives piece by piece, for many streams at once.

A convolution keeps a **tail** for each stream: the last inputs that the next piece still needs, or,
for a transposed one, the outputs that the next piece still adds to. Convolutions get their tails
from a :class:`ConvTails`, which covers one pass over one piece and writes all new tails at its end,
only for the streams that advance. Activations are ``[B, T, C]``, channels last, so that every
convolution is one matrix product over rows that the others cannot influence.

Legend: B streams, T positions of a piece, I / O input / output channels, K kernel size, S stride.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

_FEW_ROWS = 4


class ConvTails:
    """The tails of all convolutions of a network during one pass, in the order they run."""

    def __init__(self, state: torch.Tensor, sizes: Sequence[int]) -> None:
        """Begin a pass.

        Args:
            state: ``[B, sum(sizes)] float32`` tails of all convolutions side by side.
            sizes: Tail size of each convolution, in the order they run.
        """
        self._state = state
        self._tails = iter(state.split(list(sizes), dim=1))
        self._new_tails: list[torch.Tensor] = []

    def take(self) -> torch.Tensor:
        """Return the tail of the convolution that runs next, ``[B, size]``."""
        tail: torch.Tensor = next(self._tails)
        return tail

    def keep(self, new_tail: torch.Tensor) -> None:
        """Hold what that convolution needs next time; ``[B, ...]`` of its size in any layout."""
        self._new_tails.append(new_tail.flatten(1))

    def commit(self, exec_mask: torch.Tensor) -> None:
        """Write the new tails into the state, in place, where ``exec_mask [B] bool`` is True."""
        new_state = torch.cat(self._new_tails, dim=1)
        torch.where(exec_mask.unsqueeze(1), new_state, self._state, out=self._state)


@dataclass(frozen=True, slots=True)
class CausalConv1d:
    """A convolution whose left context, K - S inputs, comes from the stream's past.

    Attributes:
        weight: ``[O, K * I]``, kernel position outermost.
        bias: ``[O]`` or None.
        kernel_size: K.
        stride: S; divides the length of every piece.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    kernel_size: int
    stride: int = 1

    @staticmethod
    def from_checkpoint(
        weight: torch.Tensor, bias: torch.Tensor | None, *, stride: int = 1
    ) -> "CausalConv1d":
        """Lay out a stored ``[O, I, K]`` weight."""
        kernel_size = weight.shape[2]
        return CausalConv1d(weight.transpose(1, 2).flatten(1), bias, kernel_size, stride)

    @property
    def tail_size(self) -> int:
        """Floats of one stream's tail: K - S inputs."""
        return (self.kernel_size - self.stride) * (self.weight.shape[1] // self.kernel_size)

    def __call__(
        self, x: torch.Tensor, tails: ConvTails, starts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Convolve a piece.

        Args:
            x: ``[B, T, I] float32``.
            tails: Of this pass; holds zeros at the start of a stream.
            starts: ``[B] bool``; True where the left context is the first input, repeated.

        Returns:
            ``[B, T / S, O] float32``, a tensor of its own.
        """
        batch, length, channels = x.shape
        if self.tail_size == 0:
            return F.linear(x, self.weight, self.bias)
        context = self.kernel_size - self.stride
        tail = tails.take().view(batch, context, channels)
        if starts is not None:
            tail = torch.where(starts.view(batch, 1, 1), x[:, :1], tail)
        padded = torch.cat((tail, x), dim=1)
        tails.keep(padded[:, length:])
        windows = padded.as_strided(
            (batch, length // self.stride, self.kernel_size * channels),
            (padded.stride(0), self.stride * channels, 1),
        )
        return F.linear(windows.contiguous(), self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class CausalConvTranspose1d:
    """A transposed convolution with K = 2S: each input adds to its own S outputs and the next S.

    Attributes:
        weight: ``[2 * S * O, I]``, output position outermost.
        bias: ``[2 * S * O]``: the bias for an input's own outputs, zeros for the next ones.
        stride: S.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    stride: int

    @staticmethod
    def from_checkpoint(
        weight: torch.Tensor, bias: torch.Tensor, *, stride: int
    ) -> "CausalConvTranspose1d":
        """Lay out a stored ``[I, O, 2S]`` weight and ``[O]`` bias."""
        own = bias.repeat(stride)
        return CausalConvTranspose1d(
            weight.permute(2, 1, 0).flatten(0, 1).contiguous(),
            torch.cat((own, torch.zeros_like(own))),
            stride,
        )

    @property
    def tail_size(self) -> int:
        """Floats of one stream's tail: S outputs, not yet complete."""
        return self.weight.shape[0] // 2

    def __call__(self, x: torch.Tensor, tails: ConvTails) -> torch.Tensor:
        """Convolve a piece.

        Args:
            x: ``[B, T, I] float32``.
            tails: Of this pass; holds zeros at the start of a stream.

        Returns:
            ``[B, T * S, O] float32``, a tensor of its own.
        """
        batch, length, _ = x.shape
        parts = _widen(x, self.weight, self.bias).view(batch, length, 2, -1)
        return _overlap_add(parts, tails).view(batch, length * self.stride, -1)


@dataclass(frozen=True, slots=True)
class DepthwiseUpsample:
    """A transposed convolution with K = 2S, one filter for each channel and no bias.

    Attributes:
        weight: ``[2 * S, C]``.
        stride: S.
    """

    weight: torch.Tensor
    stride: int

    @staticmethod
    def from_checkpoint(weight: torch.Tensor, *, stride: int) -> "DepthwiseUpsample":
        """Lay out a stored ``[C, 1, 2S]`` weight."""
        return DepthwiseUpsample(weight.squeeze(1).t().contiguous(), stride)

    @property
    def tail_size(self) -> int:
        """Floats of one stream's tail: S outputs, not yet complete."""
        return self.weight.numel() // 2

    def __call__(self, x: torch.Tensor, tails: ConvTails) -> torch.Tensor:
        """Upsample a piece ``[B, T, C] float32`` to ``[B, T * S, C]``."""
        batch, length, channels = x.shape
        parts = (x.unsqueeze(2) * self.weight).reshape(batch, length, 2, -1)
        return _overlap_add(parts, tails).view(batch, length * self.stride, channels)


def _widen(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a linear layer with many more outputs than inputs to ``[B, T, I]``.

    For the few rows that one stream has, a CPU forms the product the other way round: it then
    reads the weight once instead of repacking it.
    """
    batch, length, inputs = x.shape
    if not x.is_cpu or batch * length > _FEW_ROWS:
        return F.linear(x, weight, bias)
    product = torch.mm(weight, x.reshape(-1, inputs).t()).t()
    return product.add(bias).reshape(batch, length, -1)


def _overlap_add(parts: torch.Tensor, tails: ConvTails) -> torch.Tensor:
    """Add second halves to the next position's first: ``[B, T, 2, N]`` to ``[B, T, N]``."""
    earlier = torch.cat((tails.take().unsqueeze(1), parts[:, :-1, 1]), dim=1)
    tails.keep(parts[:, -1, 1])
    return earlier.add_(parts[:, :, 0])
