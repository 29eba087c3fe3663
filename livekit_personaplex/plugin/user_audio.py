"""Whatever audio LiveKit delivers, as the model's format: 24 kHz, mono, int16."""

import numpy as np
from livekit import rtc
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ


class UserAudio:
    """Converts one caller's audio; a change of rate on the way starts a new resampler.

    Audio that is 24 kHz mono already passes untouched, which is what `agent.py` asks LiveKit for.
    """

    def __init__(self) -> None:
        self._resampler: rtc.AudioResampler | None = None
        self._rate_hz = SAMPLE_RATE_HZ

    def convert(self, frame: rtc.AudioFrame) -> NDArray[np.int16]:
        """Convert one frame.

        Args:
            frame: Any rate, any number of interleaved channels, any length.

        Returns:
            Samples at 24 kHz, ``[n]``. A resampler holds some back (up to 40 ms at 8 kHz), so `n`
            varies and may be 0.
        """
        samples = _downmix(frame)
        if frame.sample_rate != self._rate_hz:
            self._rate_hz = frame.sample_rate
            self._resampler = (
                None if self._rate_hz == SAMPLE_RATE_HZ else _new_resampler(self._rate_hz)
            )
        if self._resampler is None:
            return samples
        resampled = self._resampler.push(bytearray(samples.tobytes()))
        return np.concatenate(
            [np.frombuffer(out.data, dtype=np.int16) for out in resampled]
            or [np.zeros(0, dtype=np.int16)]
        )


def _downmix(frame: rtc.AudioFrame) -> NDArray[np.int16]:
    num_samples = frame.samples_per_channel * frame.num_channels
    samples = np.frombuffer(frame.data, dtype=np.int16)[:num_samples]
    if frame.num_channels == 1:
        return samples
    channels = samples.reshape(-1, frame.num_channels).astype(np.float32)
    mono: NDArray[np.float32] = channels.mean(axis=1)
    return np.rint(mono).astype(np.int16)


def _new_resampler(rate_hz: int) -> rtc.AudioResampler:
    # Better qualities hold twice as much back (75 ms at 8 kHz) and hand it out in as large pieces;
    # speech does not gain from the last kilohertz that they would keep.
    return rtc.AudioResampler(
        rate_hz, SAMPLE_RATE_HZ, num_channels=1, quality=rtc.AudioResamplerQuality.LOW
    )
