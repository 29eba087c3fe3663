"""SEANet, the convolutional ends of Mimi: PCM to 25 vectors a second, and back.

Source: NVIDIA/personaplex modules/seanet.py. Legend: B streams, T positions, C channels, E width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.layers.conv import CausalConv1d, CausalConvTranspose1d, ConvTails


@dataclass(frozen=True, slots=True)
class ResidualBlock:
    """``x`` plus a convolution to half the width and one back.

    Attributes:
        narrow: Kernel 3, C to C / 2.
        widen: Kernel 1, C / 2 to C.
    """

    narrow: CausalConv1d
    widen: CausalConv1d

    def __call__(self, x: torch.Tensor, tails: ConvTails) -> torch.Tensor:
        """Run a piece ``[B, T, C]``; returns the same shape."""
        hidden = F.elu_(self.narrow(F.elu(x), tails))
        return self.widen(hidden, tails).add_(x)


@dataclass(frozen=True, slots=True)
class SeanetEncoder:
    """960 samples become one vector.

    Attributes:
        first: Kernel 7, one channel to the base width.
        stages: A residual block, then a strided convolution that doubles the channels.
        last: Kernel 3, to E.
    """

    first: CausalConv1d
    stages: tuple[tuple[ResidualBlock, CausalConv1d], ...]
    last: CausalConv1d

    @property
    def tail_sizes(self) -> list[int]:
        """Sizes of the tails, in the order the convolutions run."""
        sizes = [self.first.tail_size]
        for block, downsample in self.stages:
            sizes += [block.narrow.tail_size, downsample.tail_size]
        return [*sizes, self.last.tail_size]

    def __call__(self, pcm: torch.Tensor, tails: ConvTails) -> torch.Tensor:
        """Encode ``[B, T] float32`` samples to ``[B, T / 960, E]``."""
        x = self.first(pcm.unsqueeze(2), tails)
        for block, downsample in self.stages:
            x = downsample(F.elu_(block(x, tails)), tails)
        return self.last(F.elu_(x), tails)


@dataclass(frozen=True, slots=True)
class SeanetDecoder:
    """One vector becomes 960 samples.

    Attributes:
        first: Kernel 7, from E.
        stages: A transposed convolution that halves the channels, then a residual block.
        last: Kernel 3, to one channel.
    """

    first: CausalConv1d
    stages: tuple[tuple[CausalConvTranspose1d, ResidualBlock], ...]
    last: CausalConv1d

    @property
    def tail_sizes(self) -> list[int]:
        """Sizes of the tails, in the order the convolutions run."""
        sizes = [self.first.tail_size]
        for upsample, block in self.stages:
            sizes += [upsample.tail_size, block.narrow.tail_size]
        return [*sizes, self.last.tail_size]

    def __call__(self, x: torch.Tensor, tails: ConvTails) -> torch.Tensor:
        """Decode ``[B, T, E]`` to ``[B, T * 960] float32`` samples."""
        x = self.first(x, tails)
        for upsample, block in self.stages:
            x = block(upsample(F.elu_(x), tails), tails)
        return self.last(F.elu_(x), tails).squeeze(2)
