"""How the demo model's answers and manners are judged, and how that is reported."""

import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.demo_model.measure import GOALS
from examples.demo_model.measuring import exam
from examples.demo_model.measuring.card import TEMPLATE, figures
from examples.demo_model.measuring.exam import Answers, Asked, Score
from examples.demo_model.measuring.free_run import Line, Spoken
from examples.demo_model.report import page, png, spectrogram
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES
from tests.behaviour_calls import calls, median_pitch_hz

PERSONA = "You work for Silver Bakery which is a bakery and your name is Emma. Information: ..."


def spoken(*lines: Line, loud: list[tuple[int, int]] | None = None, frames: int = 200) -> Spoken:
    """A call with these lines, heard in these spans of frames."""
    pcm = np.zeros((frames, FRAME_SAMPLES), np.int16)
    for first, last in loud or []:
        pcm[first:last] = 3000
    return Spoken(np.zeros((9, frames), np.int64), pcm.reshape(-1), list(lines))


@pytest.mark.parametrize(
    ("words", "is_right"),
    [("We are open from 9 am to 5 pm.", True), ("We are open from 9 am to 6 pm.", False)],
)
def test_an_answer_is_right_when_it_has_all_facts(words: str, is_right: bool) -> None:
    answers = Answers()
    asked = [Asked("hours", 4.0, 5.0, 10.5, ("9 am", "5 pm"))]
    exam.judge_answers(answers, PERSONA, asked, spoken(Line(5.2, 7.0, words)))
    assert answers.facts.right == is_right and answers.facts.asked == 1
    assert answers.delays_s == pytest.approx([0.2])


def test_what_is_said_at_another_time_is_no_answer() -> None:
    answers = Answers()
    asked = [Asked("name", 10.0, 11.0, 16.5, ("Emma",))]
    early, late = Line(5.0, 6.0, "I'm Emma."), Line(17.0, 18.0, "I'm Emma.")
    exam.judge_answers(answers, PERSONA, asked, spoken(early, late))
    assert answers.facts.right == 0 and answers.unanswered == 1


def test_a_greeting_counts_where_there_is_one() -> None:
    score = Score()
    exam.judge_greeting(score, PERSONA, spoken())
    assert score.asked == 0
    exam.judge_greeting(score, PERSONA, spoken(Line(0.5, 2.0, "Hello, this is Emma.")))
    exam.judge_greeting(score, PERSONA, spoken(Line(0.5, 2.0, "Hello, this is Anna.")))
    assert (score.right, score.asked) == (1, 2)


@pytest.mark.parametrize(("end", "stops", "goes_on"), [(55, True, False), (66, False, True)])
def test_stopping_and_going_on_are_told_by_the_sound(end: int, stops: bool, goes_on: bool) -> None:
    stop, on = Score(), Score()
    said = spoken(loud=[(20, end)])
    assert exam.speech_span(said) == pytest.approx((20 * FRAME_S, end * FRAME_S))
    exam.judge_stop(stop, said, 50 * FRAME_S)
    exam.judge_going_on(on, said, 50 * FRAME_S)
    assert (stop.right, on.right) == (stops, goes_on)


def test_a_pause_between_sentences_is_no_end_of_a_reply() -> None:
    stop = Score()
    said = spoken(loud=[(20, 40), (44, 90)])
    assert exam.speech_span(said) == pytest.approx((20 * FRAME_S, 90 * FRAME_S))
    exam.judge_stop(stop, said, 38 * FRAME_S)
    assert stop.right == 0


def test_a_silent_caller_may_be_asked_once_whether_he_is_there() -> None:
    score = Score()
    greeting, there = Line(0.5, 2.0, "Hello."), Line(9.0, 10.0, "Are you still there?")
    exam.judge_silence(score, spoken(greeting))
    exam.judge_silence(score, spoken(greeting, there))
    assert score.right == 2
    exam.judge_silence(score, spoken(greeting, there, Line(15.0, 16.0, "Are you still there?")))
    exam.judge_silence(score, spoken(greeting, Line(9.0, 10.0, "We open at 9 am.")))
    assert score.right == 2


def test_the_card_has_every_figure() -> None:
    measured = {"table": {name: [9, 10] for name in GOALS}, "real-time factor on 2 CPU cores": 0.2}
    text = figures(measured, GOALS)
    assert all(name in text for name in GOALS)
    assert "9 of 10 (90%)" in text and "not measured" in text
    assert "<!-- figures -->" in TEMPLATE.read_text(encoding="utf-8")


def test_a_spectrogram_is_a_picture_of_the_pitch() -> None:
    tone = (8000 * np.sin(2 * np.pi * 1000 * np.arange(24_000) / 24_000)).astype(np.int16)
    grey = spectrogram(tone)
    darkest = grey[:, grey.shape[1] // 2].argmin()
    assert abs((grey.shape[0] - darkest) / grey.shape[0] * 8000 - 1000) < 100
    content = png(grey)
    width, height = struct.unpack(">II", content[16:24])
    assert (height, width) == grey.shape
    length = struct.unpack(">I", content[33:37])[0]
    assert len(zlib.decompress(content[41 : 41 + length])) == height * (width + 1)
    assert page(["<p>x</p>"]).endswith("</html>\n")


def hum(pitch_hz: float) -> NDArray[np.int16]:
    time_s = np.arange(24_000) / 24_000
    waves = [np.sin(2 * np.pi * pitch_hz * k * time_s) / k for k in range(1, 9)]
    return (5000 * np.sum(waves, axis=0)).astype(np.int16)


@pytest.mark.parametrize("pitch_hz", [95.0, 210.0])
def test_the_pitch_of_speech_is_found(pitch_hz: float) -> None:
    assert median_pitch_hz(hum(pitch_hz)) == pytest.approx(pitch_hz, rel=0.03)
    assert median_pitch_hz(np.zeros(24_000, np.int16)) == 0.0


def test_recorded_callers_ask_for_facts_of_their_personas() -> None:
    assert {call.name for call in calls()} == {"trained", "held"}
    for call in calls():
        assert exam.name_of(call.persona) in call.persona
        assert call.asked and all(asked.facts for asked in call.asked)
        loud = np.abs(call.caller.reshape(-1, FRAME_SAMPLES).astype(int)).max(1) > 500
        for asked in call.asked:
            assert loud[round(asked.start_s / FRAME_S) : round(asked.end_s / FRAME_S)].any()
        assert not loud[: round(call.asked[0].start_s / FRAME_S) - 2].any()
        assert len(call.murmur) < 2 * 24_000 and len(call.interruption) > 8_000
