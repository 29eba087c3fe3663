"""The stage that trains the demo model's language model: its pool, its shares, its clock."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from examples.demo_model.lm import stage as lm
from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.losses import Batch
from examples.demo_model.lm.pool import CallPool
from tests.demo_model_fakes import LENGTH, fake_assembler, plan_fake_call
from tests.test_demo_model_lm import SIZES, make_batch


class FakeSource:
    """Plans that are there, or that have to be waited for."""

    def __init__(self, *, is_ready: bool) -> None:
        self.is_ready = is_ready
        self.taken = 0

    def take(self) -> list[Any]:
        self.taken += 1
        draw = np.random.default_rng(self.taken)
        return [plan_fake_call(draw, False) for _ in range(4)]


def make_refill(pool: CallPool, source: FakeSource) -> lm.Refill:
    assembler = fake_assembler()
    shop: Any = SimpleNamespace(assembler=assembler)
    return lm.Refill(shop, source, pool, torch.Generator().manual_seed(0))  # type: ignore[arg-type]


def test_a_step_waits_for_plans_only_when_too_few_calls_are_left() -> None:
    pool = CallPool(16, LENGTH, torch.device("cpu"), uses=1)
    source = FakeSource(is_ready=False)
    refill = make_refill(pool, source)
    refill.run(0.0, at_least=6)
    assert pool.num_waiting == 8 and source.taken == 2
    refill.run(0.0, at_least=6)
    assert source.taken == 2, "enough calls wait, and no plans are there"
    source.is_ready = True
    refill.run(0.0, at_least=6)
    assert source.taken == 3, "plans that are there are taken, one parcel a step"


def test_a_full_pool_takes_no_more() -> None:
    pool = CallPool(4, LENGTH, torch.device("cpu"), uses=1)
    source = FakeSource(is_ready=True)
    refill = make_refill(pool, source)
    for _ in range(3):
        refill.run(0.0, at_least=2)
    assert pool.num_waiting == 4 and source.taken == 1


def test_calls_are_read_less_and_less() -> None:
    shares = [lm.silent_share(progress) for progress in (0.0, 0.2, 0.4, 1.0)]
    assert shares == pytest.approx([0.5, 0.3, 0.1, 0.1])


def test_the_clock_ends_with_the_command_or_with_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(lm.time, "monotonic", lambda: now_s[0])
    clock = lm.Clock(540.0, total_minutes=18.0, minutes=5.0)
    assert clock.progress == pytest.approx(0.5) and not clock.is_over
    now_s[0] = 301.0
    assert clock.is_over and clock.progress < 1.0
    late = lm.Clock(1079.0, total_minutes=18.0, minutes=5.0)
    now_s[0] += 2.0
    assert late.is_over and late.progress == 1.0


def test_reports_name_both_sets() -> None:
    torch.manual_seed(0)

    judged: dict[str, list[Batch]] = {"new": [make_batch(2)], "held": [make_batch(2, seed=1)]}
    text = lm.report(TrainingLm(SIZES), judged, torch.float32)
    assert text.startswith("new: facts ") and " | held: facts " in text
