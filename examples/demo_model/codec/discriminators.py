"""Networks that tell real speech from the codec's, and so teach it what a mean of errors cannot.

Some see spectra, real and imaginary parts with compressed magnitudes, so that quiet harmonics
count; the others see the waveform folded at a period. Weights begin as He's: with the usual ones
nothing is learned in the first hundreds of steps.

Legend: B clips, N samples.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SLOPE = 0.2
_FEATURES = 2.0
"""Weight of the distance inside the discriminators."""
_COMPRESSION = 100.0
_PERIOD_GAIN = 8.0
"""Speech lies far below full scale."""


class Judgement(NamedTuple):
    """Of real clips and their copies.

    Attributes:
        discriminator: What the discriminators are to lower.
        codec: What the codec is to lower: copies taken for copies, and twice the distance inside
            the discriminators.
        features: That distance alone, for the log.
        accuracy: Part of the scores that are on the right side, for the log.
    """

    discriminator: Tensor
    codec: Tensor
    features: Tensor
    accuracy: Tensor


class SpectrumDiscriminator(nn.Module):
    """Judges one resolution of the complex spectrum."""

    window: Tensor

    def __init__(self, size: int, channels: int) -> None:
        """Make layers that narrow the frequency axis."""
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        shapes = [
            (2, (1, 2), 1),
            (channels, (1, 2), 1),
            (channels, (1, 2), 2),
            (channels, (1, 2), 4),
        ]
        self.layers = nn.ModuleList(
            _conv(inputs, channels, (3, 9), stride, (dilation, 1))
            for inputs, stride, dilation in shapes
        )
        self.layers.append(_conv(channels, channels, (3, 3), (1, 1), (1, 1)))
        self.last = _conv(channels, 1, (3, 3), (1, 1), (1, 1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """``[B, N] float32`` to scores and the outputs of all layers."""
        with torch.autocast(audio.device.type, enabled=False):
            window = self.window / (self.size / 4)
            spectrum = torch.stft(
                audio.float(), self.size, self.size // 4, window=window, return_complex=True
            )
            parts = torch.view_as_real(spectrum.transpose(1, 2)).permute(0, 3, 1, 2)
            magnitude = (parts.square().sum(1, keepdim=True) + 1e-10).sqrt()
            x = parts * (torch.log1p(_COMPRESSION * magnitude) / magnitude)
        return _run(self.layers, self.last, x.contiguous(memory_format=torch.channels_last))


class PeriodDiscriminator(nn.Module):
    """Judges the waveform folded at a period."""

    def __init__(self, period: int, channels: int) -> None:
        """Make layers that shorten the time axis."""
        super().__init__()
        self.period = period
        widths = [1, channels, 2 * channels, 4 * channels, 4 * channels]
        self.layers = nn.ModuleList(
            _conv(a, b, (5, 1), (3, 1), (1, 1)) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.layers.append(_conv(widths[-1], widths[-1], (5, 1), (1, 1), (1, 1)))
        self.last = _conv(widths[-1], 1, (3, 1), (1, 1), (1, 1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """``[B, N] float32`` to scores and the outputs of all layers."""
        length = audio.shape[1] // self.period * self.period
        folded = audio[:, :length].unflatten(1, (-1, self.period)).unsqueeze(1) * _PERIOD_GAIN
        return _run(self.layers, self.last, folded.contiguous(memory_format=torch.channels_last))


class Discriminators(nn.Module):
    """All of them, each with the same say."""

    def __init__(
        self,
        sizes: tuple[int, ...] = (2048, 1024, 512),
        periods: tuple[int, ...] = (2, 3, 5, 7, 11),
        channels: int = 32,
    ) -> None:
        """Make them; without ``periods`` only spectra are judged."""
        super().__init__()
        self.all = nn.ModuleList(SpectrumDiscriminator(size, channels) for size in sizes)
        self.all.extend(PeriodDiscriminator(period, channels) for period in periods)

    def forward(self, real: Tensor, copy: Tensor) -> Judgement:
        """Judge ``[B, N] float32`` and their copies, by least squares."""
        discriminator = adversarial = features = accuracy = torch.zeros((), device=real.device)
        for judge in self.all:
            of_real, known = judge(real)
            of_copy, made = judge(copy)
            of_real, of_copy = of_real.float(), of_copy.float()
            discriminator = discriminator + (1 - of_real).square().mean() + of_copy.square().mean()
            adversarial = adversarial + (1 - of_copy).square().mean()
            right = (of_real > 0.5).float().mean() + (of_copy < 0.5).float().mean()
            accuracy = accuracy + right.detach() / 2
            for before, after in zip(known, made, strict=True):
                size = before.detach().abs().mean(dtype=torch.float32) + 1e-6
                apart = (after - before.detach()).abs().mean(dtype=torch.float32)
                features = features + apart / size / len(known)
        count = len(self.all)
        return Judgement(
            discriminator / count,
            (adversarial + _FEATURES * features) / count,
            features.detach() / count,
            accuracy / count,
        )


def _conv(
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> nn.Conv2d:
    pads = [(size - 1) * wide // 2 for size, wide in zip(kernel, dilation, strict=True)]
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (pads[0], pads[1]), dilation)
    nn.init.kaiming_normal_(conv.weight, _SLOPE)
    nn.init.zeros_(torch.as_tensor(conv.bias))
    return conv.to(memory_format=torch.channels_last)


def _run(layers: nn.ModuleList, last: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    outputs = []
    for layer in layers:
        x = F.leaky_relu(layer(x), _SLOPE)
        outputs.append(x)
    return last(x), outputs
