"""Measuring delays on recorded audio: finding a sound again, and a call's latency from it."""

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.latency import CallAudio, measure_delays_s
from livekit_personaplex.demo.recording import Recording

PIECE = 480


def noise(num_samples: int, *, seed: int, loudness: float = 3000.0) -> NDArray[np.int16]:
    samples = np.random.default_rng(seed).normal(0.0, loudness, num_samples)
    return samples.clip(-32768, 32767).astype(np.int16)


def recording(samples: NDArray[np.int16], *, start_s: float, late_s: float = 0.0) -> Recording:
    """Samples in pieces of 20 ms; every third is noted late."""
    made = Recording()
    for index in range(len(samples) // PIECE):
        end_s = start_s + (index + 1) * PIECE / SAMPLE_RATE_HZ
        piece = samples[index * PIECE : (index + 1) * PIECE]
        made.append(piece, end_s + (late_s if index % 3 else 0.0))
    return made


def test_a_sound_is_found_at_another_loudness_and_under_noise() -> None:
    sound = noise(8_000, seed=1)
    place = noise(60_000, seed=2, loudness=100.0)
    place[31_234 : 31_234 + len(sound)] += sound // 3
    match = find(sound, place)
    assert match.sample == 31_234
    assert match.score > 0.9


def test_a_sound_that_is_not_there_scores_low() -> None:
    assert find(noise(8_000, seed=1), noise(60_000, seed=2)).score < 0.1


def test_a_piece_noted_late_does_not_shift_the_sample_clock() -> None:
    heard = recording(noise(48_000, seed=3), start_s=100.0, late_s=0.03)
    assert abs(heard.start_s(12_000) - 100.5) < 1e-9


def test_latency_is_from_the_callers_sample_to_the_first_agent_sample_that_depends_on_it() -> None:
    clip = noise(2 * SAMPLE_RATE_HZ, seed=4)
    spoken = np.concatenate([np.zeros(SAMPLE_RATE_HZ, np.int16), clip, np.zeros(60_000, np.int16)])
    sent = recording(spoken, start_s=50.0)
    # The engine's frames began 700 samples before the microphone did.
    user = np.concatenate([np.zeros(700, np.int16), spoken])
    agent = noise(len(user) // FRAME_SAMPLES * FRAME_SAMPLES, seed=5)
    # Agent sample s is heard 0.3 s after user sample s - 1920 was spoken, which was at
    # 50 s + (s - 1920 - 700) / 24000.
    heard_start_s = 50.0 + 0.3 - (FRAME_SAMPLES + 700) / SAMPLE_RATE_HZ
    heard = recording(agent, start_s=heard_start_s)
    delays_s = measure_delays_s(clip, sent, heard, CallAudio(user=user, agent=agent))
    assert len(delays_s) >= 3
    assert np.allclose(delays_s, 0.3, atol=1e-6)


def test_no_latency_is_made_up_when_the_agent_is_silent() -> None:
    clip = noise(SAMPLE_RATE_HZ, seed=6)
    spoken = np.concatenate([clip, np.zeros(60_000, np.int16)])
    silence = np.zeros(len(spoken) // FRAME_SAMPLES * FRAME_SAMPLES, np.int16)
    call = CallAudio(user=spoken, agent=silence)
    sent, heard = recording(spoken, start_s=0.0), recording(silence, start_s=0.1)
    assert measure_delays_s(clip, sent, heard, call) == []


def test_no_latency_is_made_up_when_the_call_ended_before_the_model_heard_the_question() -> None:
    clip = noise(SAMPLE_RATE_HZ, seed=6)
    call = CallAudio(user=np.zeros(0, np.int16), agent=np.zeros(0, np.int16))
    sent, heard = recording(clip, start_s=0.0), recording(clip, start_s=0.1)
    assert measure_delays_s(clip, sent, heard, call) == []
