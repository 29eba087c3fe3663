"""How far two pieces of audio are apart, by mel spectra and by complex ones.

Spectra are scaled so that a tone of full scale reads about one, and logarithms have a floor
relative to that: with a lower one the noise of digital silence outweighs all speech.

Legend: B clips, N samples.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from livekit_personaplex.audio import SAMPLE_RATE_HZ

RESOLUTIONS = ((2048, 128), (1024, 80), (512, 48), (256, 24), (128, 12))
"""Samples of a window and mel bands."""
_COMPLEX = (2048, 512)
"""Windows at which also the phase is compared."""
_FLOOR = 2e-4
_WEIGHT_FLOOR, _LOUD_FLOOR = 2e-3, 1e-5


class Distances(NamedTuple):
    """Distances of each clip, ``[B]``.

    Attributes:
        mel: Mean difference of log10 mel magnitudes, summed over the resolutions, plus linear ones.
        wave: Squared difference of complex spectra, quieter parts lifted by the root of their size.
    """

    mel: Tensor
    wave: Tensor


class SpectralDistance(nn.Module):
    """The mel and the complex distance of a clip to its original, always in float32."""

    def __init__(self) -> None:
        """Make windows and filters."""
        super().__init__()
        for size, bands in RESOLUTIONS:
            self.register_buffer(f"window{size}", torch.hann_window(size), persistent=False)
            self.register_buffer(f"filters{size}", mel_filters(size, bands), persistent=False)

    def forward(self, original: Tensor, copy: Tensor) -> Distances:
        """Compare ``[B, N] float32`` with ``[B, N]``."""
        both = torch.cat((original, copy.float()))
        mel = wave = torch.zeros(len(copy), device=copy.device)
        for size, _ in RESOLUTIONS:
            spectrum = self.spectrum(both, size)
            magnitude = (spectrum.real.square() + spectrum.imag.square() + 1e-12).sqrt()
            bands = getattr(self, f"filters{size}") @ magnitude
            here, there = bands.chunk(2)
            logs = ((here + _FLOOR).log10() - (there + _FLOOR).log10()).abs()
            mel = mel + logs.mean((1, 2)) + 2.0 * (here - there).abs().mean((1, 2))
            if size in _COMPLEX:
                first, second = torch.view_as_real(spectrum).chunk(2)
                weight = (magnitude[: len(copy)].detach() + _WEIGHT_FLOOR).rsqrt()
                error = (first - second).square().sum(3)
                loudness = magnitude[: len(copy)].square().mean((1, 2)).detach()
                wave = wave + (error * weight).mean((1, 2)) / (loudness + _LOUD_FLOOR).sqrt()
        return Distances(mel, wave)

    def spectrum(self, audio: Tensor, size: int) -> Tensor:
        """``[B, N] float32`` to ``[B, size / 2 + 1, frames] complex64``."""
        window = getattr(self, f"window{size}") / (size / 4)
        return torch.stft(audio, size, size // 4, window=window, return_complex=True)


def mel_filters(size: int, bands: int) -> Tensor:
    """Triangles over the bins of a transform, ``[bands, size / 2 + 1]``."""
    top = 2595 * math.log10(1 + SAMPLE_RATE_HZ / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2, dtype=torch.float64) / 2595) - 1)
    bins = torch.arange(size // 2 + 1) * SAMPLE_RATE_HZ / size
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0).float()
