"""Trains the codec on the bank: ``python -m examples.demo_model.codec WORK --minutes 9``.

A command trains for ``--minutes`` and saves; the next one goes on from there, until
``--total-minutes`` are spent. The product's file is written at every save.

With ``--codec FILE`` training begins with a codec that was trained before. With ``--freeze 0``
besides, its codes stay, so that a language model can be trained on them at the same time.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from examples.demo_model.bank.bank import Bank
from examples.demo_model.codec.batches import CropSource, Group, Line
from examples.demo_model.codec.discriminators import Discriminators
from examples.demo_model.codec.mimi import Mimi
from examples.demo_model.codec.scores import evaluate, held_clips
from examples.demo_model.codec.step import CodecStep, Phase, Shares, StepOptions
from examples.demo_model.codec.training import CodecTraining, Schedule
from examples.demo_model.sizes import SIZES
from examples.demo_model.speech.utterance import LABEL
from examples.demo_model.speech.voices import AGENT, CALLER
from livekit_personaplex.audio import SAMPLE_RATE_HZ

HELD_EVERY = 40
"""One in so many of an agent's utterances is kept out of the training."""
_SAVE_S = 60.0
_SPEECH_FRAMES = 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stage."""
    options = _parse(arguments)
    begun = time.monotonic()
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    bank = Bank.open(options.work / "bank")
    training = _prepare(options, bank, device)
    folder = options.work / "codec"
    spent_s = training.resume(folder)
    if options.codec is not None and training.step == 0:
        training.begin_with(Mimi.load(options.codec, SIZES[options.sizes].mimi))
    clips = held_clips(bank, held_utterances(bank), device)
    print(
        f"{len(bank.keys)} utterances, {bank.num_samples / SAMPLE_RATE_HZ / 3600:.2f} h; "
        f"step {training.step}, {spent_s / 60:.1f} minutes spent; "
        f"ready in {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    _train(options, training, folder, spent_s)
    print(f"held out, step {training.step}: {evaluate(training.model, clips)}", flush=True)


def held_utterances(bank: Bank) -> dict[str, list[int]]:
    """Give the utterances of each agent that are kept out of the training."""
    return {
        bank.speakers[speaker].name: _utterances(bank, speaker)[::HELD_EVERY]
        for speaker in bank.speakers_of(AGENT)
    }


def crop_groups(bank: Bank, batch: int) -> tuple[dict[Phase, list[Group]], int, int]:
    """Share out a batch: 45 % main agent, 20 % other agents, the rest callers.

    Returns:
        Groups of each phase, the number of agents' rows while all is learned, and how many of the
        first rows are to be judged. The first rows hold both voices.
    """
    agents = [_kept(bank, speaker) for speaker in bank.speakers_of(AGENT)]
    main, other = agents[0], np.concatenate(agents[1:] or agents[:1])
    voices = bank.speakers_of(CALLER, held=False)
    callers = np.flatnonzero(np.isin(bank.speaker, voices) & (bank.frames >= _SPEECH_FRAMES))
    from_callers = round(0.33 * batch) if len(callers) else 0
    num_agents = batch - from_callers
    judged = max(2, batch // 2)

    def split(rows: int) -> list[Group]:
        of_main = round(0.7 * rows)
        return [Group(of_main, main, False), Group(rows - of_main, other, False)]

    first, rest = split(judged), split(num_agents - judged)
    whole = first + rest
    if from_callers:
        whole = [*whole, Group(from_callers, callers, True)]
    decoder = first + split(batch - judged)
    groups = {Phase.BYPASS: whole, Phase.WHOLE: whole, Phase.DECODER: decoder}
    return groups, num_agents, judged


def _prepare(options: argparse.Namespace, bank: Bank, device: torch.device) -> CodecTraining:
    audio = torch.zeros(bank.num_samples, dtype=torch.int16, device=device)
    labels = torch.zeros(bank.num_samples // LABEL, dtype=torch.int16, device=device)
    bank.copy_to(audio, labels)
    groups, num_agents, judged = crop_groups(bank, options.batch)
    line = _line() if num_agents < options.batch else None
    source = CropSource(audio, labels, bank, frames=options.frames, seed=options.seed, line=line)
    shares = Shares(
        mel=options.mel,
        wave=options.wave,
        judged=options.judged,
    )
    step_options = StepOptions(
        agents=num_agents,
        judged=judged,
        judged_frames=min(12, options.frames - 3),
        shares=shares,
        bfloat16=device.type == "cuda",
    )
    discriminators = Discriminators(channels=options.channels)
    step = CodecStep(SIZES[options.sizes].mimi, step_options, discriminators).to(device)
    schedule = Schedule(
        rate=options.rate,
        judge_rate=options.judge_rate,
        bypass_steps=options.bypass if options.codec is None else 0,
        freeze=options.freeze,
    )
    record = options.record and device.type == "cuda"
    return CodecTraining(step, source, groups, schedule, record=record)


def _train(
    options: argparse.Namespace, training: CodecTraining, folder: Path, spent_s: float
) -> None:
    begun = saved = logged = time.monotonic()
    since = training.step
    while True:
        now = time.monotonic()
        spent = spent_s + now - begun
        if spent >= 60 * options.total_minutes or now - begun >= 60 * options.minutes:
            break
        if training.step - since >= options.max_steps:
            break
        was_fixed = training.fixed
        phase = training.advance(spent / (60 * options.total_minutes))
        if training.step % options.every == 0:
            readings = training.readings()
            if not all(np.isfinite(value) for value in readings.values()):
                raise SystemExit(f"step {training.step} went wrong: {readings}")
            took = (time.monotonic() - logged) / options.every
            said = " ".join(f"{name} {value:.3f}" for name, value in readings.items())
            print(f"{spent:6.0f} s {phase.value} {training.step} {took:.4f} s/step {said}")
            logged = time.monotonic()
        # the language model may begin as soon as codes are frozen
        if now - saved > _SAVE_S or training.fixed != was_fixed:
            training.save(folder, spent)
            saved = time.monotonic()
    training.save(folder, spent_s + time.monotonic() - begun)


def _utterances(bank: Bank, speaker: int) -> list[int]:
    """Give a speaker's utterances that are long enough, in the bank's order."""
    mine = (bank.speaker == speaker) & (bank.frames >= _SPEECH_FRAMES)
    indices: list[int] = np.flatnonzero(mine).tolist()
    return indices


def _kept(bank: Bank, speaker: int) -> NDArray[np.int64]:
    mine = _utterances(bank, speaker)
    held = set(mine[::HELD_EVERY])
    return np.array([u for u in mine if u not in held], dtype=np.int64)


def _line() -> Line:
    from examples.demo_model.talk.line import degrade

    return degrade


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    shares, schedule = Shares(), Schedule()
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0, help="of this command")
    parser.add_argument("--total-minutes", type=float, default=18.0, help="of all commands")
    parser.add_argument("--codec", type=Path, help="begin with this one")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", default="small", choices=list(SIZES))
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--rate", type=float, default=schedule.rate)
    parser.add_argument("--judge-rate", type=float, default=schedule.judge_rate)
    parser.add_argument("--bypass", type=int, default=schedule.bypass_steps)
    parser.add_argument(
        "--freeze",
        type=float,
        default=schedule.freeze,
        help="part of the time after which codes stay",
    )
    parser.add_argument("--channels", type=int, default=32, help="of the discriminators")
    for name in ("mel", "wave", "judged"):
        parser.add_argument(f"--{name}", type=float, default=getattr(shares, name))
    parser.add_argument("--record", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--every", type=int, default=100, help="steps between lines")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)
