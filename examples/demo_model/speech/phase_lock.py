"""Speech whose pitch keeps step with the codec's frames.

A codec that hears 12.5 frames a second has to spend its codes on where in a period of the pitch
each frame begins, and learns that last; until then its speech has no harmonics. Here pitch is
moved by up to a quarter tone, so that a period begins where a frame begins: what a frame sounds
like then depends on nothing but its sound and pitch, and errors at the waveform can teach it.

Legend: F frames of the vocoder (300 samples), N = 300 F samples.
"""

import numpy as np
from hibari import dsp
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

_VOICED_HZ = 40.0
_TOP_HZ = 11_000.0
_NEAR_PULSE = 2e-3


def locked_synthesis(
    parameters: list[NDArray[np.float32]], first_sample: int, r: np.random.Generator
) -> NDArray[np.float32]:
    """Run the vocoder with locked pulses.

    Args:
        parameters: Five spectral arrays ``[601, F]`` and the pitch ``[F]`` in Hz.
        first_sample: Where the codec's frames will begin: the first sample that is kept.
        r: Of the noise.

    Returns:
        ``[N] float32``.
    """
    lh, th, ln, lr, phi, f0 = parameters
    spectrum = dsp.stft(locked_pulses(f0, first_sample), lh.shape[1])
    spectrum *= _turned(dsp.ex(lh), np.tanh(th) * np.float32(np.pi))
    noise = r.standard_normal((lh.shape[0], 2 * lh.shape[1]), dtype=np.float32)
    spectrum += noise.view(np.complex64) * dsp.ex(ln)
    spectrum += _turned(dsp.ex(lr), phi)
    audio: NDArray[np.float32] = dsp.ola(spectrum)
    return audio


def _turned(size: NDArray[np.float32], angle: NDArray[np.float32]) -> NDArray[np.complex64]:
    """``size`` at an angle, without leaving single precision."""
    turned = np.empty(size.shape, np.complex64)
    np.cos(angle, out=turned.real)
    np.sin(angle, out=turned.imag)
    turned *= size
    return turned


def locked_pulses(f0: NDArray[np.float32], first_sample: int) -> NDArray[np.float32]:
    """All harmonics at the same size, ``[N]``, with the phase that :func:`locked_phase` gives."""
    hertz, phase = locked_phase(f0, first_sample)
    angle = (2 * np.pi * np.modf(phase)[0]).astype(np.float32)
    harmonics = np.floor(_TOP_HZ / np.maximum(hertz, _VOICED_HZ)) + 0.5
    below = 2 * np.sin(angle / 2)
    is_pulse = np.abs(below) <= _NEAR_PULSE
    pulses = np.sin(harmonics * angle) / np.where(is_pulse, 1.0, below)
    pulses = np.where(is_pulse, harmonics, pulses) - 0.5
    return np.where(hertz > _VOICED_HZ, pulses, 0.0).astype(np.float32)


def locked_phase(
    f0: NDArray[np.float32], first_sample: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bend the pitch so that every voiced frame holds a whole number of periods.

    Returns:
        Pitch ``[N]`` in Hz and phase ``[N]`` in periods, whole at ``first_sample`` and every frame
        from there on that lies in a voiced stretch.
    """
    position = (np.arange(len(f0) * dsp.HOP) + 0.5) / dsp.HOP - 0.5
    natural = np.interp(position, np.arange(len(f0)), f0)
    voiced = natural > _VOICED_HZ
    hertz = np.maximum(natural, _VOICED_HZ)
    phase = np.cumsum(hertz) / SAMPLE_RATE_HZ
    edges = np.flatnonzero(np.diff(np.concatenate(([False], voiced, [False])).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        borders = np.arange(first + (first_sample - first) % FRAME_SAMPLES, last, FRAME_SAMPLES)
        if len(borders) == 0:
            continue
        periods = np.diff(phase[borders])
        moved = np.cumsum(np.concatenate(([0.0], np.round(periods) - periods)))
        correction = _smooth(borders, moved - phase[borders[0]], np.arange(first, last))
        phase[first:last] += correction
        hertz[first:last] += np.gradient(correction) * SAMPLE_RATE_HZ if last - first > 1 else 0.0
    return np.where(voiced, hertz, 0.0), phase


def _smooth(
    at: NDArray[np.int64], values: NDArray[np.float64], x: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Go through the values with a steady slope; before the first and after the last stay there."""
    if len(at) < 3:
        return np.interp(x, at, values)
    curve = CubicSpline(at, values, bc_type="clamped")
    smooth: NDArray[np.float64] = curve(np.clip(x, at[0], at[-1]))
    return smooth
