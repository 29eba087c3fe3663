"""Voices and utterances of the demo model; what needs its text to speech is skipped without it."""

import numpy as np
import pytest

from examples.demo_model.speech.utterance import (
    LABEL,
    Utterance,
    Word,
    join,
    level,
    speech_bounds,
    trim,
)
from examples.demo_model.speech.voices import AGENTS, Engines, caller, flite_callers
from examples.demo_model.talk.domain import sentence


def burst(seconds: float, words: list[Word] | None) -> Utterance:
    audio = 0.1 * np.ones(int(seconds * 24000), np.float32)
    return Utterance(audio, words, np.ones(-(-len(audio) // LABEL), np.int16))


def test_joined_utterances_keep_their_times_and_labels() -> None:
    first = burst(0.503, [Word("a", 0.1, 0.4)])
    joined = join([first, burst(0.3, [Word("b", 0.0, 0.2)])], [0.5], grid=1920)
    begin_s = joined.words[1].on_s
    assert begin_s >= 1.003 and begin_s / 0.08 == pytest.approx(round(begin_s / 0.08))
    start = round(begin_s * 24000)
    assert not joined.audio[start - 2000 : start].any() and joined.audio[start] > 0
    assert joined.labels[start // LABEL] == 1 and joined.labels[start // LABEL - 1] == 0
    assert join([first, burst(0.3, None)], [0.1]).words is None


def test_loudness_is_the_same_for_all() -> None:
    r = np.random.default_rng(0)
    sound = r.standard_normal(24000).astype(np.float32)
    for gain in (0.001, 0.02, 0.3):
        levelled = level(gain * sound)
        assert np.sqrt((levelled**2).mean()) == pytest.approx(0.09, rel=0.05)


def test_silence_is_trimmed_and_speech_is_found() -> None:
    audio = np.zeros(24000, np.float32)
    audio[6000:18000] = 0.1
    kept, cut_s = trim(audio)
    assert cut_s == pytest.approx(0.23) and 0.5 < len(kept) / 24000 < 0.6
    begins, ends = speech_bounds(Utterance(kept, None, np.zeros(0, np.int16)))
    assert begins == pytest.approx(0.02, abs=0.001) and ends == pytest.approx(0.52, abs=0.001)


def test_callers_are_the_same_everywhere_and_unlike() -> None:
    callers = [caller(k) for k in range(400)]
    assert callers == [caller(k) for k in range(400)]
    assert len({str(c.settings) for c in callers}) == 400
    assert {c.engine for c in callers} == {"hibari", "espeak"}
    assert sum(c.held for c in callers) == 16
    assert all(c.held for c in flite_callers(8))


@pytest.mark.parametrize("agent", [0, 1])
def test_words_are_heard_at_their_times(agent: int) -> None:
    pytest.importorskip("hibari")
    pytest.importorskip("onnxruntime")
    engines, r = Engines(), np.random.default_rng(0)
    tokens = sentence("price#0/red scarf/58 dollars")
    said = engines.say(AGENTS[agent], tokens, r)
    assert [w.written for w in said.words] == [t.written for t in tokens]
    assert said.words[0].on_s == pytest.approx(0.04, abs=0.001)
    for word in (said.words[1], said.words[2], said.words[4]):
        span = said.audio[int(word.on_s * 24000) : int(word.off_s * 24000)]
        assert np.sqrt((span**2).mean()) > 0.03
    assert (said.labels[[0, -1]] == 0).all() and len(set(said.labels)) > 8
    again = Engines().say(AGENTS[agent], tokens, np.random.default_rng(0))
    np.testing.assert_allclose(again.audio, said.audio, atol=1e-4)
