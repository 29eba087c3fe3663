"""The pitch of speech in classes, read off the audio on any device: a target for the codec.

A class is a quarter tone; 0 means no pitch. The estimate is the highest peak of the
autocorrelation, each lag made up for by the window's own (Boersma 1993).

Legend: B clips, N samples, T labels of 20 ms.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.demo_model.speech.utterance import LABEL
from livekit_personaplex.audio import SAMPLE_RATE_HZ

LOWEST_HZ, HIGHEST_HZ = 60.0, 480.0
CLASSES_AN_OCTAVE = 24
CLASSES = 1 + 3 * CLASSES_AN_OCTAVE
"""No pitch, then three octaves."""
_DECIMATION = 3
_WINDOW = 400
"""Samples at 8 kHz: 50 ms, three periods of the lowest pitch."""
_STRENGTH, _LOUDNESS = 0.55, 0.008
_OCTAVE_COST = 0.02
"""What a lag costs for each octave it is longer: a peak comes again at twice its lag."""


@torch.no_grad()
def pitch_hz(audio: Tensor) -> Tensor:
    """Estimate the pitch of each 20 ms: ``[B, N] float32`` to ``[B, N / 480]`` Hz, 0 for none."""
    rate = SAMPLE_RATE_HZ // _DECIMATION
    low = F.avg_pool1d(audio.unsqueeze(1), _DECIMATION).squeeze(1)
    hop, before = LABEL // _DECIMATION, (_WINDOW - LABEL // _DECIMATION) // 2
    frames = F.pad(low, (before, _WINDOW - hop - before)).unfold(1, _WINDOW, hop)
    frames = frames - frames.mean(2, keepdim=True)
    window = torch.hann_window(_WINDOW, device=audio.device)
    power = _autocorrelation(frames * window)
    own = _autocorrelation(window)
    loudness = frames.square().mean(2).sqrt()
    shortest, longest = int(rate / HIGHEST_HZ), int(rate / LOWEST_HZ) + 1
    lags = torch.arange(shortest, longest, device=audio.device)
    strength = power / power[..., :1].clamp(min=1e-9) * (own[0] / own)
    strength = strength[..., shortest:longest]
    best = (strength - _OCTAVE_COST * (lags / shortest).log2()).argmax(2, keepdim=True)
    inner = best.clamp(1, len(lags) - 2)
    left, peak, right = (strength.gather(2, inner + step) for step in (-1, 0, 1))
    bend = (left - 2 * peak + right).clamp(max=-1e-6)
    shift = (0.5 * (left - right) / bend).clamp(-0.5, 0.5)
    hertz = rate / (shortest + inner + shift).squeeze(2)
    voiced = (peak.squeeze(2) > _STRENGTH) & (loudness > _LOUDNESS)
    estimate: Tensor = hertz * voiced
    return estimate


def pitch_classes(audio: Tensor) -> Tensor:
    """``[B, N] float32`` to classes ``[B, N / 480] int64``."""
    hertz = pitch_hz(audio)
    octave = (hertz.clamp(min=LOWEST_HZ) / LOWEST_HZ).log2()
    index = (octave * CLASSES_AN_OCTAVE).round().long().clamp(0, CLASSES - 2)
    classes: Tensor = (index + 1) * (hertz > 0)
    return classes


def _autocorrelation(x: Tensor) -> Tensor:
    """Of the last axis, as long as it; no wrapping round for the lags that are read."""
    spectrum = torch.fft.rfft(x, 2 * _WINDOW)
    power: Tensor = torch.fft.irfft(spectrum.abs().square(), 2 * _WINDOW)
    return power[..., :_WINDOW]
