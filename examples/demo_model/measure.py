"""Stage ``measure``: what the checkpoint can do, free running in the product's engine.

``python -m examples.demo_model.measure WORK`` asks at least 200 questions in each of three sets
(trained phrasings with new personas, held-out phrasings and names, callers of another text to
speech), interrupts, murmurs, keeps silent, and prints and saves ``WORK/measured.json``.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from examples.demo_model.bank.bank import Bank
from examples.demo_model.lm.workshop import open_tokens
from examples.demo_model.measuring import exam
from examples.demo_model.measuring.card import NUMBERS, write_card
from examples.demo_model.measuring.exam import Answers, Asked, Score
from examples.demo_model.measuring.free_run import Request, Spoken, hold_calls, open_core
from examples.demo_model.measuring.word_error import distance, normal_words
from examples.demo_model.speech.voices import CALLER
from examples.demo_model.talk.call_rows import CallPlan, parse
from examples.demo_model.talk.calls import plan_exam
from examples.demo_model.talk.domain import spoken_form
from examples.demo_model.talk.line import degrade
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ, float_to_pcm16, pcm16_to_float
from livekit_personaplex.engine.core import EngineCore, find_device
from livekit_personaplex.sampling import Sampling

GOALS = {
    "facts, trained phrasings": 0.85,
    "facts, held-out phrasings and names": 0.65,
    "facts, callers of another text to speech": 0.50,
    "greets with the persona's name": 0.90,
    "stops when interrupted": 0.90,
    "goes on through a murmur": 0.90,
    "quiet for a silent caller": 0.95,
}
_EXAM_FRAMES, _GAP_S = 500, 6.5
_QUIET_S = 24.0
_WORD_ERROR_LINES = 120
_NO_INTERRUPTIONS = ("bc", "hello", "how", "thanks", "bye")


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """What is measured with.

    Attributes:
        core: With the checkpoint.
        bank: Callers' utterances.
        tokens: The vocabulary.
        questions: How many a set has at least.
        sampling: Of all calls; seeds are set for each.
    """

    core: EngineCore
    bank: Bank
    tokens: Any
    questions: int
    sampling: Sampling

    def request(self, plan: CallPlan, caller: NDArray[np.int16], seed: int) -> Request:
        """Make a request in the voice of the plan's agent."""
        voice = self.bank.speakers[plan.voice].name
        sampling = dataclasses.replace(self.sampling, seed=seed)
        return Request(plan.persona, voice, sampling, caller)


def callers_of(bank: Bank, name: str) -> list[int]:
    """List the callers of a set: ``trained``, ``held`` or ``other``."""
    is_other = name == "other"
    return [
        speaker
        for speaker in bank.speakers_of(CALLER, held=name != "trained")
        if (bank.speakers[speaker].engine == "flite") == is_other
    ]


def caller_track(bank: Bank, plan: CallPlan, seed: int) -> NDArray[np.int16]:
    """Put a caller's call together, over a line drawn from ``seed``."""
    track = np.zeros(plan.frames * FRAME_SAMPLES, np.float32)
    for utterance, sample in plan.caller:
        sound = pcm16_to_float(bank.audio_of(utterance))[: len(track) - sample]
        track[sample : sample + len(sound)] += sound
    generator = torch.Generator().manual_seed(seed)
    heard = degrade(torch.from_numpy(track).unsqueeze(0), generator, None)[0]
    return float_to_pcm16(heard.clamp(-1.0, 1.0).numpy())


def ask(bench: Bench, name: str) -> tuple[Answers, Score, list[tuple[CallPlan, Spoken]]]:
    """Ask the questions of one set; gives answers, greetings and all calls."""
    callers = callers_of(bench.bank, name)
    answers, greetings = Answers(), Score()
    calls: list[tuple[CallPlan, Spoken]] = []
    seed = 0
    while callers and answers.facts.asked < bench.questions:
        plans = [
            plan_exam(
                np.random.default_rng([53, seed + slot]),
                bench.bank,
                bench.tokens,
                _EXAM_FRAMES,
                held=name != "trained",
                caller=callers[(seed + slot) % len(callers)],
            )
            for slot in range(bench.core.num_slots)
        ]
        requests = [
            bench.request(plan, caller_track(bench.bank, plan, seed + slot), seed + slot)
            for slot, plan in enumerate(plans)
        ]
        seed += len(plans)
        for plan, said in zip(plans, hold_calls(bench.core, requests), strict=True):
            exam.judge_answers(answers, plan.persona, asked_in(plan), said)
            exam.judge_greeting(greetings, plan.persona, said)
            calls.append((plan, said))
        print(f"{name}: {answers.facts}, greetings {greetings}", flush=True)
    return answers, greetings, calls


def asked_in(plan: CallPlan) -> list[Asked]:
    """Give the questions of a planned call; an answer is waited for until the next one."""
    return [Asked(q.kind, q.start_s, q.end_s, q.start_s + _GAP_S, q.facts) for q in plan.questions]


def manners(bench: Bench, calls: int) -> dict[str, Score]:
    """Keep silent, then interrupt and murmur in calls that are the same until then."""
    scores = {name: Score() for name in (*list(GOALS)[4:],)}
    callers = callers_of(bench.bank, "held")
    plans = [
        plan_exam(
            np.random.default_rng([59, seed]),
            bench.bank,
            bench.tokens,
            _EXAM_FRAMES,
            held=True,
            caller=callers[seed % len(callers)],
        )
        for seed in range(calls)
    ]
    silent = [exam.quiet_caller(_QUIET_S, seed) for seed in range(calls)]
    first = hold_calls(
        bench.core,
        [bench.request(p, s, i) for i, (p, s) in enumerate(zip(plans, silent, strict=True))],
    )
    again: list[tuple[str, float, Request]] = []
    for seed, (plan, caller, said) in enumerate(zip(plans, silent, first, strict=True)):
        exam.judge_silence(scores["quiet for a silent caller"], said)
        span = exam.speech_span(said)
        if span is None or span[1] - span[0] < exam.ONSET_S + 1.1:
            continue
        onset_s = span[0] + exam.ONSET_S
        for name, utterance in (
            ("stops when interrupted", interruption_of(bench.bank, plan.speaker)),
            ("goes on through a murmur", murmur_of(bench.bank, plan.speaker)),
        ):
            changed = caller.copy()
            exam.interrupt(changed, speech_of(bench.bank, utterance), onset_s)
            again.append((name, onset_s, bench.request(plan, changed, seed)))
    for (name, onset_s, _), said in zip(
        again, hold_calls(bench.core, [request for *_, request in again]), strict=True
    ):
        judge = exam.judge_stop if name.startswith("stops") else exam.judge_going_on
        judge(scores[name], said, onset_s)
    return scores


def murmur_of(bank: Bank, speaker: int) -> int:
    """Find a murmur of a caller."""
    said = bank.by_speaker[speaker]
    return next(said[key] for key in said if key.startswith("ask.bc#"))


def interruption_of(bank: Bank, speaker: int) -> int:
    """Find a question of a caller that begins with no "okay", which might be a murmur."""
    for key, utterance in bank.by_speaker[speaker].items():
        kind, _, _, suffix = parse(key)
        if kind not in _NO_INTERRUPTIONS and suffix == "":
            return utterance
    raise ValueError(f"speaker {speaker} of the bank asks nothing plainly")


def speech_of(bank: Bank, utterance: int) -> NDArray[np.int16]:
    """Give an utterance from where its speech begins."""
    begins = int(bank.speech_s[utterance, 0] * SAMPLE_RATE_HZ)
    return bank.audio_of(utterance)[begins:]


def word_error(calls: Sequence[tuple[CallPlan, Spoken]], limit: int) -> float | None:
    """Give a recogniser's word error on the agent's lines; None where there is no recogniser."""
    try:
        from examples.demo_model.measuring.recognizer import Recognizer
    except ImportError as error:
        print(f"no word error: {error}")
        return None
    recognizer, errors, count = Recognizer(), 0, 0
    for said in (said for _, said in calls):
        for line in said.lines:
            if limit == 0:
                return errors / max(1, count)
            limit -= 1
            first, last = line.start_s - 0.1, line.end_s + 0.8
            samples = pcm16_to_float(said.pcm)[
                max(0, int(first * SAMPLE_RATE_HZ)) : int(last * SAMPLE_RATE_HZ)
            ]
            words = " ".join(w for word in line.text.split() for w in spoken_form(word))
            expected = normal_words(words)
            errors += distance(expected, recognizer.words(samples))
            count += len(expected)
    return errors / max(1, count)


def real_time_factor(checkpoint: Path, threads: int = 1, frames: int = 125) -> float:
    """Time one call on the CPU in float32, the whole tick; on two cores the engine takes one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        core = open_core(checkpoint, torch.device("cpu"), slots=1)
        request = Request("", core.voices[0], Sampling(seed=0), exam.quiet_caller(0.8, 0))
        hold_calls(core, [request])
        caller = exam.quiet_caller(frames * 0.08, 0)
        start = time.perf_counter()
        hold_calls(core, [dataclasses.replace(request, caller=caller)])
        return (time.perf_counter() - start) / (frames * 0.08)
    finally:
        torch.set_num_threads(before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and save everything."""
    options = _parse(arguments)
    work, checkpoint = options.work, options.checkpoint or options.work / "checkpoint"
    core = open_core(checkpoint, find_device(options.device), slots=options.slots)
    sampling = Sampling(greedy=options.greedy)
    bank, tokens = Bank.open(work / "bank"), open_tokens(work)
    bench = Bench(core, bank, tokens, options.questions, sampling)
    table: dict[str, Score] = {}
    results: dict[str, Any] = {}
    everything: list[tuple[CallPlan, Spoken]] = []
    greeted = Score()
    for name, row in zip(("trained", "held", "other"), list(GOALS)[:3], strict=True):
        answers, greetings, calls = ask(bench, name)
        table[row] = answers.facts
        greeted.right, greeted.asked = (
            greeted.right + greetings.right,
            greeted.asked + greetings.asked,
        )
        everything += calls
        results[row] = dataclasses.asdict(answers)
    table["greets with the persona's name"] = greeted
    table |= manners(bench, options.calls)
    results[NUMBERS[0]] = word_error(everything, _WORD_ERROR_LINES)
    results[NUMBERS[1]] = real_time_factor(checkpoint)
    results["table"] = {row: [score.right, score.asked] for row, score in table.items()}
    for row, score in table.items():
        print(f"{row:44} {score!s:>16}   goal {GOALS[row]:.0%}")
    for row in NUMBERS:
        print(f"{row:44} {results[row]}")
    (work / "measured.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    write_card(checkpoint / "README.md", results, GOALS)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a checkpoint.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="default: WORK/checkpoint")
    parser.add_argument("--questions", type=int, default=200, help="of each set, at least")
    parser.add_argument("--calls", type=int, default=60, help="to be interrupted, and so on")
    parser.add_argument("--slots", type=int, default=32, help="calls at once")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--greedy", action="store_true", help="instead of the default sampling")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
