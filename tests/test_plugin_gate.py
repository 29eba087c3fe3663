import numpy as np
import pytest
from livekit import rtc

from livekit_personaplex.loudness import frame_rms
from livekit_personaplex.plugin.gate import SPEECH_TAG, SpeechGate, TagGate
from livekit_personaplex.user_speech import UserSpeech


def judge(gate: SpeechGate, frames: list[tuple[bool, float]]) -> list[bool]:
    return [gate.update(has_word=has_word, rms=rms) for has_word, rms in frames]


WORD, SOUND, QUIET = (True, 0.1), (False, 0.1), (False, 0.0005)


def test_the_models_silence_is_not_speech() -> None:
    assert not any(judge(SpeechGate(min_silence_ms=800), [QUIET] * 200))


def test_a_word_opens_the_gate_before_its_sound() -> None:
    assert judge(SpeechGate(min_silence_ms=800), [QUIET, (True, 0.0005), SOUND]) == [
        False,
        True,
        True,
    ]


def test_sound_without_a_word_opens_the_gate() -> None:
    assert judge(SpeechGate(min_silence_ms=800), [QUIET, SOUND]) == [False, True]


def test_a_pause_between_sentences_does_not_end_the_utterance() -> None:
    gate = SpeechGate(min_silence_ms=800)
    assert all(judge(gate, [WORD, SOUND] + [QUIET] * 9 + [WORD]))


def test_enough_silence_ends_the_utterance() -> None:
    gate = SpeechGate(min_silence_ms=800)
    assert judge(gate, [WORD, SOUND] + [QUIET] * 12) == [True] * 11 + [False] * 3


def test_the_end_of_a_word_may_be_quieter_than_its_beginning() -> None:
    gate = SpeechGate(min_silence_ms=80)
    assert judge(gate, [(False, 0.007), SOUND, (False, 0.007), (False, 0.004)]) == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("noise_rms", [0.006, 0.02, 0.1])
def test_a_model_whose_silence_is_loud_is_still_told_from_its_speech(noise_rms: float) -> None:
    gate = SpeechGate(min_silence_ms=800)
    noise = (False, noise_rms)
    judge(gate, [noise] * 60)
    assert not any(judge(gate, [noise] * 50))
    assert all(judge(gate, [(True, 0.2), (False, 0.2)] * 20))
    assert not judge(gate, [noise] * 40)[-1]


def test_livekits_gate_reads_what_the_session_wrote_on_the_frame() -> None:
    frames = [
        rtc.AudioFrame(b"\0\0", 24_000, 1, 1, userdata=data)
        for data in ({SPEECH_TAG: True}, {SPEECH_TAG: False}, {})
    ]
    assert [TagGate().update(frame) for frame in frames] == [True, False, False]


def test_the_level_of_a_full_scale_square_wave_is_one() -> None:
    assert frame_rms(np.full(1_920, -32_768, dtype=np.int16)) == 1.0
    assert frame_rms(np.zeros(1_920, dtype=np.int16)) == 0.0


def follow(speech: UserSpeech, levels: list[float]) -> list[bool]:
    changes = []
    for rms in levels:
        if speech.update(rms):
            changes.append(speech.is_speaking)
    return changes


def test_a_caller_who_speaks_and_stops_is_noticed_once_each() -> None:
    assert follow(UserSpeech(), [0.0] * 10 + [0.1] * 20 + [0.0] * 20) == [True, False]


def test_a_click_is_no_speech() -> None:
    assert follow(UserSpeech(), [0.0] * 10 + [0.3] + [0.0] * 10) == []


def test_the_pause_between_two_words_is_not_the_end() -> None:
    assert follow(UserSpeech(), ([0.1] * 6 + [0.0] * 5) * 4) == [True]


def test_steady_noise_is_taken_for_background() -> None:
    speech = UserSpeech()
    follow(speech, [0.02] * 500)
    assert not speech.is_speaking
    assert follow(speech, [0.2] * 5) == [True]
