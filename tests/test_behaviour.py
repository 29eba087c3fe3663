"""What the demo model does in a call, through the real engine on the CPU: a few minutes.

Seeds are fixed, thresholds leave a margin to what was measured. The table that is printed at the
end is what later changes to engine, precision and sampling are judged by.
"""

import functools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import livekit_personaplex
from examples.demo_model.measuring import exam
from examples.demo_model.measuring.exam import Answers, Score
from examples.demo_model.measuring.free_run import Request, Spoken, hold_calls, open_core
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.sampling import Sampling
from tests.behaviour_calls import FOLDER, Call, calls, median_pitch_hz

CHECKPOINT = Path(
    os.environ.get("BEHAVIOUR_CHECKPOINT")
    or Path(livekit_personaplex.__file__).parent / "demo" / "checkpoint"
)
VOICE, OTHER_VOICE = "DEMOF0", "DEMOM0"
SLOTS = 5
QUIET_S = 18.0

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (CHECKPOINT / "model.safetensors").is_file(),
        reason="the demo model's checkpoint is not in the repository yet",
    ),
    pytest.mark.skipif(
        not (FOLDER / "calls.json").is_file(), reason="the recorded callers are missing"
    ),
]


@functools.cache
def core() -> EngineCore:
    return open_core(CHECKPOINT, torch.device("cpu"), slots=SLOTS)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Rows to be printed once all tests have run."""
    rows: dict[str, str] = {}
    yield rows
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("")
        for name, figure in rows.items():
            reporter.write_line(f"{name:36} {figure}")


def request_of(call: Call, seed: int, *, greedy: bool = False, voice: str = VOICE) -> Request:
    return Request(call.persona, voice, Sampling(greedy=greedy, seed=seed), call.caller)


@functools.cache
def answered(greedy: bool) -> tuple[Spoken, ...]:
    requests = [request_of(call, seed, greedy=greedy) for seed, call in enumerate(calls())]
    return tuple(hold_calls(core(), requests))


def facts(name: str, *, greedy: bool = False) -> Answers:
    answers = Answers()
    for call, said in zip(calls(), answered(greedy), strict=True):
        if call.name == name:
            exam.judge_answers(answers, call.persona, call.asked, said)
    return answers


@functools.cache
def undisturbed() -> tuple[tuple[Request, Spoken], ...]:
    """Calls in which the caller is silent."""
    requests = [
        replace(request_of(call, 100 + seed), caller=exam.quiet_caller(QUIET_S, seed))
        for seed, call in enumerate(calls())
    ]
    return tuple(zip(requests, hold_calls(core(), requests), strict=True))


def disturbed(sounds: list[np.ndarray]) -> list[tuple[float, Spoken]]:
    """Hold the silent calls again; into those with a long enough greeting someone speaks."""
    requests, onsets = [], []
    for (request, said), sound in zip(undisturbed(), sounds, strict=True):
        span = exam.speech_span(said)
        if span is None or span[1] - span[0] < exam.ONSET_S + 1.1:
            continue
        caller = request.caller[: round(10.0 / FRAME_S) * FRAME_SAMPLES].copy()
        exam.interrupt(caller, sound, span[0] + exam.ONSET_S)
        requests.append(replace(request, caller=caller))
        onsets.append(span[0] + exam.ONSET_S)
    return list(zip(onsets, hold_calls(core(), requests), strict=True))


@pytest.mark.parametrize(("name", "least"), [("trained", 0.7), ("held", 0.45)])
def test_answers_have_the_personas_facts(table: dict[str, str], name: str, least: float) -> None:
    score = facts(name).facts
    table[f"facts, {name} phrasings"] = str(score)
    assert score.share >= least


def test_greetings_have_the_personas_name(table: dict[str, str]) -> None:
    score = Score()
    for call, said in zip(calls(), answered(False), strict=True):
        exam.judge_greeting(score, call.persona, said)
    table["greets with the name"] = str(score)
    assert score.asked >= 6 and score.share >= 0.75


def test_answers_come_in_time(table: dict[str, str]) -> None:
    delays_s = facts("trained").delays_s + facts("held").delays_s
    table["text of an answer after a question"] = f"{np.median(delays_s):.2f} s"
    assert np.median(delays_s) < 1.0


def test_the_agent_stops_when_it_is_interrupted(table: dict[str, str]) -> None:
    score = Score()
    for onset_s, said in disturbed([call.interruption for call in calls()]):
        exam.judge_stop(score, said, onset_s)
    table["stops within 0.5 s"] = str(score)
    assert score.asked >= 4 and score.share >= 0.7


def test_the_agent_goes_on_through_a_murmur(table: dict[str, str]) -> None:
    score = Score()
    for onset_s, said in disturbed([call.murmur for call in calls()]):
        exam.judge_going_on(score, said, onset_s)
    table["goes on through a murmur"] = str(score)
    assert score.asked >= 4 and score.share >= 0.7


def test_the_agent_is_quiet_while_the_caller_is_silent(table: dict[str, str]) -> None:
    score = Score()
    for _, said in undisturbed():
        exam.judge_silence(score, said)
    table["quiet for a silent caller"] = str(score)
    assert score.share >= 0.8


def test_the_voice_prompt_is_heard_in_the_pitch(table: dict[str, str]) -> None:
    short = [replace(request, caller=request.caller[: 90 * 1920]) for request, _ in undisturbed()]
    pitches = {}
    for voice in (VOICE, OTHER_VOICE):
        said = hold_calls(core(), [replace(r, voice=voice) for r in short[:SLOTS]])
        pitches[voice] = median_pitch_hz(np.concatenate([each.pcm for each in said]))
    high, low = pitches[VOICE], pitches[OTHER_VOICE]
    table["pitch by voice prompt"] = f"{high:.0f} Hz and {low:.0f} Hz"
    assert high > 1.25 * low > 0.0


def test_greedy_is_no_better_than_sampling_by_much(table: dict[str, str]) -> None:
    sampled, greedy = (
        [facts(name, greedy=is_greedy).facts for name in ("trained", "held")]
        for is_greedy in (False, True)
    )
    table["facts, trained, greedy"] = str(greedy[0])
    table["facts, held, greedy"] = str(greedy[1])
    gap = sum(score.right for score in greedy) - sum(score.right for score in sampled)
    assert abs(gap) <= 0.25 * sum(score.asked for score in sampled)


def test_a_call_past_the_ring_still_takes_turns(table: dict[str, str]) -> None:
    call = calls()[0]
    context = core().model.config.temporal_config.context
    ask_s = (context + 60) * FRAME_S
    caller = exam.quiet_caller(ask_s + 8.0, 0)
    exam.interrupt(caller, call.interruption, ask_s)
    (said,) = hold_calls(core(), [replace(request_of(call, 0), caller=caller)])
    end_s = ask_s + len(call.interruption) / 24_000
    before = [line for line in said.lines if line.end_s < ask_s]
    answer = said.words_between(end_s - 0.2, end_s + 4.0)
    table["lines in 4 silent minutes"] = str(len(before))
    table["answer past the ring"] = answer or "none"
    assert answer
    assert len(before) <= 6
