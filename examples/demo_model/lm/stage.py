"""Stage ``lm``: trains the language model on calls that are made while it learns.

``python -m examples.demo_model.lm WORK --minutes 9 --total-minutes 18`` trains for nine minutes of
a schedule of eighteen, saves every minute and goes on where it stopped when it is run again.

The numbers to watch are those of the lines ``new`` (new personas and calls, trained phrasings and
names) and ``held`` (phrasings, names and voices kept out): whole facts right with everything
before them given.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.losses import METRICS, Batch, LossWeights, TrainingLoss, judge
from examples.demo_model.lm.plans import PlanSource
from examples.demo_model.lm.pool import CallPool
from examples.demo_model.lm.training import (
    Progress,
    Schedule,
    Trainer,
    count_commands,
    moved,
    restore,
    save,
)
from examples.demo_model.lm.workshop import Workshop, make_planner, open_planner, open_workshop
from examples.demo_model.sizes import SIZES, checkpoint_bytes

_SAVE_S, _LOG_STEPS = 60.0, 50
_SILENT_SHARES = (0.5, 0.1)
_SILENT_UNTIL = 0.4
"""Calls that are read and not heard: half at first, a tenth from 40 % of the time on."""
_JUDGED_CALLS = 192


class Clock:
    """Time of this command, and how much of the whole plan is over."""

    def __init__(self, before_s: float, total_minutes: float, minutes: float) -> None:
        """Start now."""
        self._start = time.monotonic()
        self._before_s, self._total_s, self._limit_s = before_s, total_minutes * 60, minutes * 60

    @property
    def here_s(self) -> float:
        """Seconds of this command."""
        return time.monotonic() - self._start

    @property
    def progress(self) -> float:
        """Part of the plan that is over."""
        return min(1.0, (self._before_s + self.here_s) / self._total_s)

    @property
    def is_over(self) -> bool:
        """Whether command or plan is at its end."""
        return self.here_s >= self._limit_s or self.progress >= 1.0


def silent_share(progress: float) -> float:
    """Give the share of calls whose caller is read instead of heard."""
    first, last = _SILENT_SHARES
    return first + (last - first) * min(1.0, progress / _SILENT_UNTIL)


def judged_calls(
    shop: Workshop, *, frames: int, count: int, device: torch.device
) -> dict[str, list[Batch]]:
    """Make the calls that progress is judged by; the same in every command of this length."""
    plan = make_planner(shop.bank, shop.tokens, frames)
    batches: dict[str, list[Batch]] = {}
    for name, is_held in (("new", False), ("held", True)):
        draw = np.random.default_rng([77, is_held])
        plans = [plan(draw, is_held) for _ in range(count)]
        generator = torch.Generator(device).manual_seed(77)
        size = shop.assembler.at_once
        batches[name] = [
            shop.assembler.assemble(plans[first : first + size], generator, is_own=False)
            for first in range(0, count, size)
        ]
    return batches


def report(net: TrainingLm, judged: dict[str, list[Batch]], dtype: torch.dtype) -> str:
    """Judge the network on all sets. Waits for the device."""
    lines = []
    for name, batches in judged.items():
        counts = sum((judge(net, batch, dtype=dtype) for batch in batches), torch.zeros(()))
        shares = [f"{right / max(all_, 1):.3f}" for right, all_ in counts.view(-1, 2).tolist()]
        whole, pieces, words, heard = shares
        lines.append(f"{name}: facts {whole} pieces {pieces} words {words} heard {heard}")
    return " | ".join(lines)


class Refill:
    """Keeps the pool full."""

    def __init__(
        self,
        shop: Workshop,
        source: PlanSource,
        pool: CallPool,
        generator: torch.Generator,
        scramble: np.random.Generator | None = None,
    ) -> None:
        """Hold what is needed; ``scramble`` as in `Assembler.assemble`."""
        self._shop, self._source, self._pool, self._generator = shop, source, pool, generator
        self._scramble = scramble
        self.waited_s = 0.0

    def run(self, share: float, *, at_least: int) -> None:
        """Put new calls where there is room for them, until enough wait.

        Args:
            share: Of calls that are read.
            at_least: Calls that must wait afterwards.
        """
        while self._pool.num_free >= self._shop.assembler.at_once:
            is_enough = self._pool.num_waiting >= at_least
            if is_enough and not self._source.is_ready:
                return
            before = time.monotonic()
            plans = self._source.take()
            self.waited_s += time.monotonic() - before
            calls = self._shop.assembler.assemble(
                plans, self._generator, silent_share=share, scramble=self._scramble
            )
            self._pool.put(calls)
            if self._pool.num_waiting >= at_least:
                return


def train(options: argparse.Namespace) -> None:
    """Train until command or plan is at its end."""
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    # the codec's codes are to be those of the product, which computes in float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    work, frames = options.work, options.frames
    commands = count_commands(work / "lm")
    factory = partial(open_planner, work, frames)
    seed = (options.seed, commands)
    with PlanSource(factory, workers=options.workers, seed=seed) as source:
        shop = open_workshop(work, options.sizes, device, length=options.columns)
        torch.manual_seed(options.seed)
        net = TrainingLm(shop.sizes).to(device)
        loss = TrainingLoss(LossWeights(), dtype=dtype, device=device)
        trainer = Trainer(net, loss, device, use_graph=options.graph)
        progress, has_moments = restore(work / "lm", trainer)
        so_far = f"{progress.steps} steps in {progress.elapsed_s:.0f} s so far"
        print(f"{checkpoint_bytes(shop.sizes) / 1e6:.1f} MB of weights, {so_far}", flush=True)
        torch.manual_seed(1000 * options.seed + commands)
        judged = judged_calls(shop, frames=frames, count=options.judged, device=device)
        pool = CallPool(options.pool, options.columns, device, uses=options.uses)
        generator = torch.Generator(device).manual_seed(commands)
        scramble = np.random.default_rng([*seed, 2]) if options.scramble else None
        refill = Refill(shop, source, pool, generator, scramble)
        refill.run(silent_share(0.0), at_least=options.batch)
        _loop(options, trainer, refill, pool, judged, progress, has_moments, dtype)


def _loop(
    options: argparse.Namespace,
    trainer: Trainer,
    refill: Refill,
    pool: CallPool,
    judged: dict[str, list[Batch]],
    before: Progress,
    has_moments: bool,
    dtype: torch.dtype,
) -> None:
    clock = Clock(before.elapsed_s, options.total_minutes, options.minutes)
    schedule = Schedule(peak=options.rate, warmup_steps=options.warmup)
    draw = np.random.default_rng([options.seed, before.commands, 1])
    folder, steps, saved_s, logged_s = options.work / "lm", 0, 0.0, 0.0

    def keep() -> None:
        now = moved(before, steps=steps, elapsed_s=clock.here_s, calls=pool.num_calls)
        save(folder, trainer, Progress(now.steps, now.elapsed_s, now.calls, before.commands + 1))

    while not clock.is_over:
        refill.run(silent_share(clock.progress), at_least=options.batch)
        rate = schedule.rate(before.steps + steps if has_moments else steps, clock.progress)
        trainer.step(pool.take(options.batch, draw), rate)
        steps += 1
        if steps % _LOG_STEPS == 0:
            means = (trainer.metrics_sum / _LOG_STEPS).tolist()
            trainer.metrics_sum.zero_()
            spent_s, logged_s = clock.here_s - logged_s, clock.here_s
            numbers = " ".join(f"{n} {v:.3f}" for n, v in zip(METRICS, means, strict=True))
            print(
                f"[{clock.here_s:6.1f}] {before.steps + steps} {spent_s / _LOG_STEPS:.4f} s/step "
                f"rate {rate:.1e} calls {pool.num_calls} waited {refill.waited_s:.1f} s {numbers}",
                flush=True,
            )
        if clock.here_s - saved_s > _SAVE_S:
            keep()
            print(f"[{clock.here_s:6.1f}] {report(trainer.net, judged, dtype)}", flush=True)
            saved_s = clock.here_s
    keep()
    print(f"[{clock.here_s:6.1f}] saved; {report(trainer.net, judged, dtype)}", flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the language model.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--sizes", choices=list(SIZES), default="small")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this command")
    parser.add_argument("--total-minutes", type=float, default=18.0, help="of all commands")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--warmup", type=int, default=200, help="steps until it is reached")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--frames", type=int, default=300, help="live frames of a call")
    parser.add_argument("--columns", type=int, default=512, help="prompt and live frames")
    parser.add_argument("--uses", type=int, default=2, help="of each call, 3 at most")
    parser.add_argument("--pool", type=int, default=1024, help="calls that wait on the device")
    parser.add_argument("--judged", type=int, default=_JUDGED_CALLS, help="calls to judge by")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scramble", action="store_true", help="facts of some silent calls")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args(arguments)
