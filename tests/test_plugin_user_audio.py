import numpy as np
import pytest
from livekit import rtc
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.plugin.user_audio import UserAudio


def sine(rate_hz: int, duration_s: float, *, pitch_hz: float = 440.0) -> NDArray[np.int16]:
    time_s = np.arange(round(rate_hz * duration_s)) / rate_hz
    wave: NDArray[np.float64] = np.sin(2 * np.pi * pitch_hz * time_s) * 8_000
    return np.rint(wave).astype(np.int16)


def frames_of(
    samples: NDArray[np.int16], rate_hz: int, piece_ms: int, num_channels: int = 1
) -> list[rtc.AudioFrame]:
    size = rate_hz * piece_ms // 1000
    pieces = [samples[i : i + size] for i in range(0, len(samples) - size + 1, size)]
    return [
        rtc.AudioFrame(np.repeat(piece, num_channels).tobytes(), rate_hz, num_channels, len(piece))
        for piece in pieces
    ]


def convert(frames: list[rtc.AudioFrame]) -> NDArray[np.int16]:
    audio = UserAudio()
    return np.concatenate([audio.convert(frame) for frame in frames])


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("piece_ms", [7, 10, 20])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_any_format_becomes_24_khz_mono_of_the_same_pitch_and_length(
    rate_hz: int, piece_ms: int, num_channels: int
) -> None:
    frames = frames_of(sine(rate_hz, 2.1), rate_hz, piece_ms, num_channels)
    heard = convert(frames)
    pushed_s = sum(frame.duration for frame in frames)
    assert pushed_s - len(heard) / SAMPLE_RATE_HZ == pytest.approx(0.02, abs=0.021)
    middle = heard[4_800:28_800].astype(float)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * SAMPLE_RATE_HZ / len(middle) == pytest.approx(440, abs=1)
    assert middle.std() == pytest.approx(8_000 / np.sqrt(2), rel=0.02)


def test_ten_minutes_at_48_khz_do_not_drift() -> None:
    frames = frames_of(sine(48_000, 1.0), 48_000, 20)
    audio = UserAudio()
    num_heard = sum(len(audio.convert(frame)) for _ in range(600) for frame in frames)
    assert 600 - num_heard / SAMPLE_RATE_HZ == pytest.approx(0.02, abs=0.021)


def test_the_models_own_format_passes_untouched() -> None:
    samples = sine(24_000, 1.0)
    assert np.array_equal(convert(frames_of(samples, 24_000, 20)), samples)


def test_two_channels_become_their_mean() -> None:
    stereo = np.array([[100, 300], [-50, -150], [0, 1]], dtype=np.int16)
    frame = rtc.AudioFrame(stereo.tobytes(), 24_000, 2, 3)
    assert convert([frame]).tolist() == [200, -100, 0]


def test_a_caller_may_change_their_rate_in_mid_call() -> None:
    audio = UserAudio()
    num_heard = 0
    for rate_hz in (48_000, 16_000, 24_000, 48_000):
        for frame in frames_of(sine(rate_hz, 1.0), rate_hz, 20):
            num_heard += len(audio.convert(frame))
    assert num_heard / SAMPLE_RATE_HZ == pytest.approx(4.0, abs=0.1)
