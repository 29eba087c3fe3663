"""What a caller's line does to speech, for a batch of tracks at once: each row has its own line.

In the order of a call: the agent's voice leaks in, the room rings, the caller is near or far,
noise is there, and the line filters, samples and clips. Everything is drawn from one generator of
the device.
"""

import math

import torch
from torch import Tensor

from examples.demo_model.speech.utterance import SPEECH_RMS
from livekit_personaplex.audio import SAMPLE_RATE_HZ

_ROOM_S = 0.5
_PADDING = 2400
"""Samples of silence after a track, so that filters do not ring from its end into its start."""
_MU = 255.0


def degrade(track: Tensor, generator: torch.Generator, leak: Tensor | None = None) -> Tensor:
    """Give the tracks as they arrive over lines drawn anew for each row.

    Args:
        track: ``[B, N] float32``; speech at ``SPEECH_RMS``, digital silence around it.
        generator: Of the track's device.
        leak: ``[B, N]`` the agent's track, which may be heard in the caller's microphone.

    Returns:
        ``[B, N] float32`` within -1 and 1.
    """
    draw = _Draw(generator, track.device, len(track))
    sound = track
    if leak is not None:
        sound = sound + _echo(leak, draw)
    sound = _room(sound, draw)
    gain = torch.where(draw.chance(0.8), draw.decibels(-16.0, 3.0), draw.decibels(0.0, 0.0))
    sound = sound * gain
    loudness = SPEECH_RMS * gain * draw.decibels(-45.0, -12.0) * draw.chance(0.75)
    sound = sound + _noise(sound.shape[1], draw) * loudness
    sound = _filter(sound, draw)
    sound = torch.where(draw.chance(0.06), (sound * draw.uniform(2.0, 5.0)).clamp(-0.5, 0.5), sound)
    return sound.clamp(-1.0, 1.0)


class _Draw:
    """Random numbers, one for each row, as columns ``[B, 1]``."""

    def __init__(self, generator: torch.Generator, device: torch.device, rows: int) -> None:
        self.generator, self.device, self.rows = generator, device, rows

    def uniform(self, low: float, high: float) -> Tensor:
        """Draw between two numbers."""
        unit = torch.rand(self.rows, 1, generator=self.generator, device=self.device)
        return low + (high - low) * unit

    def decibels(self, low: float, high: float) -> Tensor:
        """Draw a factor of amplitude."""
        return torch.pow(10.0, self.uniform(low, high) / 20.0)

    def chance(self, probability: float) -> Tensor:
        """Draw which rows something happens to, ``[B, 1] bool``."""
        return self.uniform(0.0, 1.0) < probability

    def normal(self, length: int) -> Tensor:
        """Draw white noise ``[B, length]``."""
        shape = (self.rows, length)
        return torch.randn(shape, generator=self.generator, device=self.device)


def _echo(agent: Tensor, draw: _Draw) -> Tensor:
    """The agent's voice out of the caller's loudspeaker: later, softer, duller."""
    length = agent.shape[1]
    delay = draw.uniform(0.05, 0.3) * SAMPLE_RATE_HZ
    at = torch.arange(length, device=agent.device) - delay.long()
    moved = agent.gather(1, at.clamp(min=0).expand(len(agent), length)) * (at >= 0)
    heard = moved * draw.decibels(-40.0, -14.0) * draw.chance(0.3)
    dull = _low_pass(_fft_size(length), draw.uniform(2000.0, 8000.0), 2)
    return _filtered(heard, dull)


def _room(sound: Tensor, draw: _Draw) -> Tensor:
    """A third of the callers sit in a room that rings."""
    count, length = int(_ROOM_S * SAMPLE_RATE_HZ), sound.shape[1]
    seconds = torch.arange(count, device=sound.device) / SAMPLE_RATE_HZ
    tail = draw.normal(count) * torch.exp(-6.9 * seconds / draw.uniform(0.08, _ROOM_S))
    tail = tail / tail.square().sum(1, keepdim=True).sqrt()
    tail = tail * draw.uniform(0.05, 0.6) * draw.chance(0.35)
    tail[:, 0] += 1.0
    size = _fft_size(length + count)
    ringing = torch.fft.irfft(torch.fft.rfft(sound, size) * torch.fft.rfft(tail, size), n=size)
    heard: Tensor = ringing[:, :length]
    return heard


def _noise(length: int, draw: _Draw) -> Tensor:
    """White to brown noise of unit RMS, some with hum, some coming and going."""
    hertz = _hertz(_fft_size(length), draw.device)
    sound = _filtered(draw.normal(length), hertz.clamp(min=30.0).pow(-draw.uniform(0.0, 1.1)))
    sound = sound / sound.square().mean(1, keepdim=True).sqrt().clamp(min=1e-9)
    seconds = torch.arange(length, device=sound.device) / SAMPLE_RATE_HZ
    pitch = torch.where(draw.chance(0.5), draw.uniform(50.0, 50.0), draw.uniform(60.0, 60.0))
    phase = 2 * math.pi * pitch * seconds
    hum = torch.sin(phase) + torch.sin(2 * phase) / 2 + torch.sin(3 * phase) / 3
    sound = sound + hum * draw.uniform(0.3, 1.5) * draw.chance(0.2)
    swell = torch.sin(2 * math.pi * draw.uniform(0.05, 1.5) * seconds + draw.uniform(0.0, 6.3))
    sound = sound * (1 + 0.5 * swell * draw.chance(0.3))
    return sound / sound.square().mean(1, keepdim=True).sqrt().clamp(min=1e-9)


def _filter(sound: Tensor, draw: _Draw) -> Tensor:
    """A telephone for a quarter of the rows; for others a dull or a thin microphone."""
    length = _fft_size(sound.shape[1])
    is_phone = draw.chance(0.25)
    phone = _low_pass(length, draw.uniform(3300.0, 3700.0), 6)
    phone = phone * _high_pass(length, draw.uniform(200.0, 320.0), 3)
    dull = _low_pass(length, draw.uniform(3000.0, 9000.0), 3)
    thin = _high_pass(length, draw.uniform(60.0, 400.0), 1)
    is_dull, is_thin = draw.chance(0.3), draw.chance(0.3)
    other = torch.where(is_dull, dull, 1.0) * torch.where(is_thin, thin, 1.0)
    heard = _filtered(sound, torch.where(is_phone, phone, other))
    return torch.where(is_phone, _telephone(heard), heard)


def _telephone(sound: Tensor) -> Tensor:
    """Sample at 8 kHz in mu-law, and back; ``sound`` is band limited, a third of N is whole."""
    slow = _mu_law(sound[:, ::3])
    size = _fft_size(slow.shape[1])
    quick: Tensor = torch.fft.irfft(torch.fft.rfft(slow, size) * 3, n=3 * size)
    return quick[:, : sound.shape[1]]


def _filtered(sound: Tensor, response: Tensor) -> Tensor:
    """Scale the spectrum; ``response`` has the bins of ``_fft_size``, so nothing wraps round."""
    length = sound.shape[1]
    size = _fft_size(length)
    changed: Tensor = torch.fft.irfft(torch.fft.rfft(sound, size) * response, n=size)
    return changed[:, :length]


def _mu_law(sound: Tensor) -> Tensor:
    """Round to the 255 steps of a telephone's mu-law."""
    magnitude = torch.log1p(_MU * sound.abs().clamp(max=1.0)) / math.log1p(_MU)
    stepped = torch.round(magnitude * 127) / 127
    return torch.sign(sound) * torch.expm1(stepped * math.log1p(_MU)) / _MU


def _hertz(length: int, device: torch.device) -> Tensor:
    return torch.arange(length // 2 + 1, device=device) * (SAMPLE_RATE_HZ / length)


def _low_pass(length: int, cutoff: Tensor, order: int) -> Tensor:
    """Magnitude of a Butterworth filter, ``[B, bins]``, cutoff in Hz."""
    ratio = _hertz(length, cutoff.device) / cutoff
    return (1 + ratio.pow(2 * order)).rsqrt()


def _high_pass(length: int, cutoff: Tensor, order: int) -> Tensor:
    ratio = cutoff / _hertz(length, cutoff.device).clamp(min=1.0)
    return (1 + ratio.pow(2 * order)).rsqrt()


def _fft_size(length: int) -> int:
    """The next length, a little over ``length``, that has small factors alone."""
    base = 1 << max(0, (length + _PADDING - 1).bit_length() - 4)
    return next(m * base for m in (8, 9, 10, 12, 15, 16) if m * base >= length + _PADDING)
