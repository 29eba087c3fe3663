"""Reads recordings of any usual kind as 24 kHz mono, and sets their loudness.

The libraries for it are imported where they are used: an engine that only has saved voices needs
none of them.
"""

import os
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.errors import ConfigError

VOICE_LOUDNESS_LUFS = -24.0
"""Loudness of voice prompts, as the model was trained."""
LOUDNESS_BLOCK_S = 0.4
"""The loudness rule measures blocks of this length, so shorter recordings have no loudness."""
_RATES_HZ = (8_000, 192_000)


def read_recording(
    file: str | os.PathLike[str] | BinaryIO, *, name: str, max_s: float
) -> NDArray[np.float32]:
    """Read a recording as 24 kHz mono; stereo is averaged, other rates are converted.

    Args:
        file: Path, or an open file that can seek.
        name: What messages call it.
        max_s: Longest recording taken, in seconds.

    Returns:
        ``[samples] float32``.

    Raises:
        ConfigError: It is no audio file, empty, too long, of more than two channels, of an unusual
            rate, or holds samples that are no finite numbers.
    """
    import soundfile
    import soxr

    if isinstance(file, (str, os.PathLike)) and not os.path.exists(file):
        raise ConfigError(f"expected a recording at {name}, found none; check the path")
    try:
        with soundfile.SoundFile(file) as audio:
            rate_hz, channels = int(audio.samplerate), int(audio.channels)
            _check_format(name, rate_hz, channels, num_samples=int(audio.frames), max_s=max_s)
            samples = audio.read(dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:  # whose own text repeats the file, or its address
        raise ConfigError(
            f"{name} cannot be read as audio ({error.error_string}); use a WAV file"
        ) from error
    except (soundfile.SoundFileError, OSError) as error:
        raise ConfigError(f"{name} cannot be read as audio ({error}); use a WAV file") from error
    if len(samples) == 0:
        raise ConfigError(f"{name} holds no audio")
    if not np.isfinite(samples).all():
        raise ConfigError(f"{name} holds samples that are no finite numbers")
    mono: NDArray[np.float32] = samples[:, 0] if channels == 1 else samples.mean(axis=1)
    if rate_hz != SAMPLE_RATE_HZ:
        mono = soxr.resample(mono, rate_hz, SAMPLE_RATE_HZ).astype(np.float32)
    return mono


def set_loudness(samples: NDArray[np.float32], lufs: float, *, name: str) -> NDArray[np.float32]:
    """Scale 24 kHz mono to an integrated loudness by ITU-R BS.1770.

    Source: NVIDIA/personaplex models/lm.py, normalize_audio. Like there, peaks beyond 1.0 stay.

    Raises:
        ConfigError: The recording is silent, or too short to have a loudness.
    """
    import pyloudnorm

    if len(samples) <= LOUDNESS_BLOCK_S * SAMPLE_RATE_HZ:
        raise ConfigError(
            f"{name} is {len(samples) / SAMPLE_RATE_HZ:.2f} s long; a voice needs more than "
            f"{LOUDNESS_BLOCK_S} s, and a few seconds of speech to be one"
        )
    loudness = float(pyloudnorm.Meter(SAMPLE_RATE_HZ).integrated_loudness(samples))
    if not np.isfinite(loudness):
        raise ConfigError(f"{name} is silent")
    gain = 10.0 ** ((lufs - loudness) / 20.0)
    louder: NDArray[np.float32] = (samples.astype(np.float64) * gain).astype(np.float32)
    return louder


def _check_format(
    name: str, rate_hz: int, channels: int, *, num_samples: int, max_s: float
) -> None:
    lowest_hz, highest_hz = _RATES_HZ
    if not lowest_hz <= rate_hz <= highest_hz:
        raise ConfigError(f"{name} has {rate_hz} samples a second, expected 8,000 to 192,000")
    if channels not in (1, 2):
        raise ConfigError(f"{name} has {channels} channels, expected mono or stereo")
    if num_samples > max_s * rate_hz:
        raise ConfigError(
            f"{name} is {num_samples / rate_hz:.1f} s long, at most {max_s:g} s are taken"
        )
