"""What callers ask, and how the agent's answers and manners are judged.

Every figure comes as how many were right and how many there were.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from examples.demo_model.measuring.free_run import Spoken
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ

GREETING_S = 5.0
STOP_S = 0.5
ONSET_S = 1.0
"""An interruption begins this long after the agent does."""
STILL_THERE = "are you still there?"
_PART_S = FRAME_S / 4
"""Loudness is judged in parts of 20 ms."""
_QUIET_PARTS = 35
"""More than the pause between two sentences of one reply."""
GOES_ON_S = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in a call: its span in time, when its answer must be over, and the facts."""

    kind: str
    start_s: float
    end_s: float
    until_s: float
    facts: tuple[str, ...]


@dataclass(slots=True)
class Score:
    """How many of all were right."""

    right: int = 0
    asked: int = 0

    def add(self, is_right: bool) -> None:
        """Count one."""
        self.right += is_right
        self.asked += 1

    @property
    def share(self) -> float:
        """0 to 1; 0 where there was none."""
        return self.right / max(1, self.asked)

    def __str__(self) -> str:
        """Write it as a row of the table has it."""
        return f"{self.right}/{self.asked} = {self.share:.0%}"


@dataclass(slots=True)
class Answers:
    """Scores of facts, all and by kind, and what was said."""

    facts: Score = field(default_factory=Score)
    kinds: dict[str, Score] = field(default_factory=dict)
    unanswered: int = 0
    delays_s: list[float] = field(default_factory=list)
    examples: list[dict[str, object]] = field(default_factory=list)


def judge_answers(answers: Answers, persona: str, asked: Sequence[Asked], said: Spoken) -> None:
    """Count the answers of a call; an answer is right if it has all facts."""
    for question in asked:
        words = said.words_between(question.end_s - FRAME_S, question.until_s)
        is_right = all(fact.lower() in words for fact in question.facts)
        answers.facts.add(is_right)
        answers.kinds.setdefault(question.kind, Score()).add(is_right)
        answers.unanswered += not words
        later = [line.start_s for line in said.lines if line.start_s > question.end_s - FRAME_S]
        if words and later:
            answers.delays_s.append(later[0] - question.end_s)
        answers.examples.append(
            {
                "persona": persona,
                "kind": question.kind,
                "facts": list(question.facts),
                "answer": words,
                "is_right": is_right,
            }
        )


def name_of(persona: str) -> str:
    """Read the name off a persona."""
    return persona.partition("our name is ")[2].partition(".")[0].split(" ")[0]


def judge_greeting(score: Score, persona: str, said: Spoken) -> None:
    """Count whether a greeting has the persona's name, if there was a greeting."""
    words = said.words_between(0.0, GREETING_S)
    if words:
        score.add(name_of(persona).lower() in words)


def speech_span(said: Spoken) -> tuple[float, float] | None:
    """Give when the agent first begins to be heard and falls silent again, if it does."""
    on = np.flatnonzero(said.loud())
    if not len(on):
        return None
    start_s = float(on[0] * _PART_S)
    return start_s, silent_from_s(said, start_s)


def silent_from_s(said: Spoken, start_s: float) -> float:
    """Give when, from a time on, the agent is silent for 0.7 seconds."""
    loud = said.loud()
    for at in range(round(start_s / _PART_S), len(loud)):
        if not loud[at : at + _QUIET_PARTS].any():
            return at * _PART_S
    return len(loud) * _PART_S


def interrupt(caller: NDArray[np.int16], speech: NDArray[np.int16], at_s: float) -> None:
    """Let the caller say something at a time, in place."""
    first = int(at_s * SAMPLE_RATE_HZ)
    count = min(len(speech), len(caller) - first)
    caller[first : first + count] = speech[:count]


def judge_stop(score: Score, said: Spoken, onset_s: float) -> None:
    """Count whether the agent fell silent in time after an interruption began."""
    score.add(silent_from_s(said, onset_s) - onset_s <= STOP_S)


def judge_going_on(score: Score, said: Spoken, onset_s: float) -> None:
    """Count whether the agent went on through a murmur; its reply has to be that long."""
    score.add(silent_from_s(said, onset_s) - onset_s > GOES_ON_S)


def judge_silence(score: Score, said: Spoken) -> None:
    """Count whether the agent, once it has greeted, says nothing but one question."""
    later = [line.text.lower() for line in said.lines if line.start_s > GREETING_S]
    score.add(not later or later == [STILL_THERE])


def quiet_caller(seconds: float, seed: int) -> NDArray[np.int16]:
    """Give a caller who says nothing on a line that is not quite still, whole frames."""
    draw = np.random.default_rng([7, seed])
    count = round(seconds / FRAME_S) * FRAME_SAMPLES
    noise: NDArray[np.int16] = np.rint(3.0 * draw.standard_normal(count)).astype(np.int16)
    return noise
