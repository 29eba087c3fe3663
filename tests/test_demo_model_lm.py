"""The demo model's batches, losses and training, with a fake bank and small networks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.demo_model.lm.agents import TAIL_FRAMES
from examples.demo_model.lm.columns import AGENT, USER
from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.losses import (
    FACT,
    LIVE,
    MUTE,
    PROMPT,
    READ,
    Batch,
    LossWeights,
    TrainingLoss,
    judge,
)
from examples.demo_model.lm.plans import PLANS_A_PARCEL, PlanSource
from examples.demo_model.lm.pool import CallPool
from examples.demo_model.lm.scramble import Scrambler
from examples.demo_model.lm.training import Progress, Schedule, Trainer, restore, save
from examples.demo_model.sizes import DepformerSizes, Sizes, TemporalSizes
from livekit_personaplex.model.prompt import SILENCE_CODES
from tests.demo_model_fakes import (
    ASK,
    LENGTH,
    LIVE_FRAMES,
    TEXT_CARD,
    FakePlacement,
    FakePlan,
    fake_assembler,
    fake_codes,
    fake_utterances,
    plan_fake_call,
)

CPU = torch.device("cpu")
SIZES = Sizes(
    temporal=TemporalSizes(width=32, heads=2, layers=3, context=200),
    depformer=DepformerSizes(width=16, heads=2, layers=1),
    text_card=TEXT_CARD,
)


def make_batch(
    count: int = 4, *, silent_share: float = 0.0, seed: int = 0, is_own: bool | None = False
) -> Batch:
    draw = np.random.default_rng(seed)
    plans = [plan_fake_call(draw, False) for _ in range(count)]
    return fake_assembler().assemble(
        plans, torch.Generator(), silent_share=silent_share, is_own=is_own
    )


def plan_without_caller(agent: list[FakePlacement]) -> FakePlan:
    draw = np.random.default_rng(0)
    plan = plan_fake_call(draw, False)
    return FakePlan(plan.persona, 5, LIVE_FRAMES, [], plan.text, plan.heard, plan.fact, agent)


def make_trainer(weights: LossWeights | None = None) -> Trainer:
    torch.manual_seed(0)
    loss = TrainingLoss(weights or LossWeights(), dtype=torch.float32, device=CPU)
    return Trainer(TrainingLm(SIZES), loss, CPU, use_graph=True)


def test_an_utterance_has_the_same_codes_wherever_it_is_said() -> None:
    sounds = fake_utterances()
    codes = fake_codes(sounds)
    assembler = fake_assembler()
    first = 4 + 12 + 3
    for frame in (0, 7):
        plan = plan_without_caller([FakePlacement(1, 2, frame, frame + 4)])
        batch = assembler.assemble([plan], torch.Generator(), is_own=True)
        # codebook 0 has no delay, the others are one column late
        at = first + frame
        start = codes.start[1]
        said = codes.codes[:, start : start + 4 + TAIL_FRAMES]
        assert torch.equal(batch.columns[0, 1, at : at + 8], said[0])
        assert torch.equal(batch.columns[0, 2:9, at + 1 : at + 9], said[1:])


def test_a_cut_utterance_ends_in_silence_at_once() -> None:
    plan = plan_without_caller([FakePlacement(2, 1, 5, 7)])
    for is_own in (True, False):
        batch = fake_assembler().assemble([plan], torch.Generator(), is_own=is_own)
        codes = batch.columns[0, 1, 4 + 12 + 3 :]
        is_silence = codes[:LIVE_FRAMES] == SILENCE_CODES[0]
        assert (~is_silence).nonzero().flatten().tolist() == [5, 6]


def test_facts_are_judged_where_the_sound_is_another_sentences_and_codes_where_it_is_its_own() -> (
    None
):
    sounds = fake_utterances()
    codes = fake_codes(sounds)
    plan = plan_fake_call(np.random.default_rng(0), False)
    plan.agent = [FakePlacement(1, 2, 7, 11)]
    batch = fake_assembler().assemble([plan] * 6, torch.Generator())
    first = 4 + 12 + 3
    live = slice(first, first + LIVE_FRAMES)
    for row in range(6):
        is_own = row in (2, 5)
        role = batch.role[row, live]
        assert bool((role < MUTE).all()) == is_own
        assert bool((role % MUTE == FACT).any()) != is_own
        start = codes.start[1 if is_own else 2]
        said = codes.codes[0, start : start + 4]
        assert torch.equal(batch.columns[row, 1, first + 7 : first + 11], said)
    assert torch.equal(batch.columns[0, 0], batch.columns[2, 0])


def test_the_line_echoes_the_sound_that_the_agent_has() -> None:
    def echo(
        track: torch.Tensor, generator: torch.Generator, leak: torch.Tensor | None
    ) -> torch.Tensor:
        assert leak is not None
        return leak

    plan = plan_without_caller([FakePlacement(1, 2, 7, 11)])
    assembler = replace(fake_assembler(), line=echo)
    own, other = (
        assembler.assemble([plan], torch.Generator(), is_own=is_own).columns[0]
        for is_own in (True, False)
    )
    at = slice(4 + 12 + 3 + 7, 4 + 12 + 3 + 11)
    for columns in (own, other):
        assert torch.equal(columns[USER][0, at], columns[AGENT][0, at])
    assert not torch.equal(own[USER][0, at], other[USER][0, at])


def test_the_caller_is_heard_where_he_speaks() -> None:
    plan = plan_fake_call(np.random.default_rng(0), False)
    batch = fake_assembler().assemble([plan], torch.Generator())
    user = batch.columns[0, USER][0, 4 + 12 + 3 :]
    loud = user[:LIVE_FRAMES] > 10
    assert loud.nonzero().flatten().tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(("pace", "frames"), [(2.0, [2, 3]), (0.8, [2, 3, 4, 5, 6])])
def test_a_caller_is_heard_as_fast_as_he_is_played(pace: float, frames: list[int]) -> None:
    plan = replace(plan_fake_call(np.random.default_rng(0), False), pace=pace)
    batch = fake_assembler().assemble([plan], torch.Generator())
    user = batch.columns[0, USER][0, 4 + 12 + 3 :]
    assert (user[:LIVE_FRAMES] > 10).nonzero().flatten().tolist() == frames


def test_roles_begin_with_the_first_live_column_and_mark_facts() -> None:
    plan = plan_fake_call(np.random.default_rng(0), False)
    batch = fake_assembler().assemble([plan], torch.Generator(), is_own=False)
    role = batch.role[0]
    first = 4 + 12 + 3
    assert (role[:first] == PROMPT).all()
    assert (role[first : first + LIVE_FRAMES] != PROMPT).all()
    assert (role[first + LIVE_FRAMES :] == PROMPT).all()
    fact = (role == FACT + MUTE).nonzero().flatten()
    assert batch.columns[0, 0, fact].tolist() == [int(plan.persona.split()[-1])]


def test_a_silent_call_is_read_and_what_is_read_is_not_judged() -> None:
    batch = make_batch(4, silent_share=0.5)
    is_read = batch.role % MUTE == READ
    assert is_read.sum(1).tolist() == [1, 1, 0, 0]
    assert (batch.columns[:, 0][is_read] == ASK).all()
    user = batch.columns[:2, USER]
    live = (batch.role[:2] > PROMPT).unsqueeze(1)
    silence = torch.tensor(SILENCE_CODES).view(1, 8, 1).expand_as(user)
    assert torch.equal(user[:, :1][live], silence[:, :1][live].short())
    assert (batch.heard[:2] == -1).all()


def test_scrambled_facts_are_the_same_in_persona_and_answer_and_have_no_sound() -> None:
    plans = [plan_fake_call(np.random.default_rng(seed), False) for seed in range(8)]
    scrambler = Scrambler.of(lambda piece: "abc" if piece >= 20 else "?", TEXT_CARD)
    assembler = replace(fake_assembler(), scrambler=scrambler)
    draw = np.random.default_rng(0)
    batch = assembler.assemble(plans, torch.Generator(), silent_share=1.0, scramble=draw)
    is_fact = (batch.role % MUTE == FACT) | (batch.columns[:, 0] >= 20) & (batch.role > PROMPT)
    said = batch.columns[:, 0][is_fact].tolist()
    named = [int(plan.persona.split()[-1]) for plan in plans]
    assert said[:3] + said[4:7] == named[:3] + named[4:7]
    assert said[3::4] != named[3::4]
    last_of_persona = batch.columns[:, 0, 4 + 6 + 2].tolist()
    assert said == last_of_persona
    silence = torch.tensor(SILENCE_CODES).short()
    live = batch.role[3] > PROMPT
    assert (batch.columns[3, 1, live] == silence[0]).all()


def test_the_sound_of_muted_columns_costs_nothing() -> None:
    batch = make_batch(2, is_own=True)
    muted = Batch(batch.columns, batch.heard, batch.role + MUTE * (batch.role > PROMPT))
    loss = loss_of(muted)
    assert loss[6:].tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(loss[1:6], loss_of(batch)[1:6])


def test_calls_too_long_for_a_batch_are_left_out() -> None:
    plans = [plan_fake_call(np.random.default_rng(0), False) for _ in range(2)]
    plans[0].persona = " ".join(["4"] * LENGTH)
    assert len(fake_assembler().assemble(plans, torch.Generator()).role) == 1


def test_no_call_is_used_more_often_than_allowed() -> None:
    pool = CallPool(16, LENGTH, CPU, uses=3)
    batch = make_batch(8)
    batch.heard[:, 0] = torch.arange(8)
    pool.put(batch)
    draw = np.random.default_rng(0)
    seen = torch.cat([pool.take(4, draw).heard[:, 0] for _ in range(6)])
    assert torch.bincount(seen.long()).tolist() == [3] * 8
    assert pool.num_waiting == 0 and pool.num_free == 16
    with pytest.raises(AssertionError):
        pool.take(1, draw)
    with pytest.raises(AssertionError):
        CallPool(16, LENGTH, CPU, uses=4)


def change(batch: Batch, columns: torch.Tensor) -> Batch:
    return Batch(columns, batch.heard, batch.role)


def quiet_weights() -> LossWeights:
    return LossWeights(agent_noise=0.0, user_noise=0.0, jump_share=0.0, depth_share=1.0)


def loss_of(batch: Batch) -> torch.Tensor:
    torch.manual_seed(0)
    net = TrainingLm(SIZES)
    loss = TrainingLoss(quiet_weights(), dtype=torch.float32, device=CPU)
    with torch.no_grad():
        return loss(net, batch)[1]


def test_targets_outside_the_live_part_cost_nothing() -> None:
    batch = make_batch(is_own=True)
    changed = batch.columns.clone()
    after = (batch.role[:, :-1] > PROMPT) & (batch.role[:, 1:] == PROMPT)
    after = torch.nn.functional.pad(after, (1, 0))
    changed[after.unsqueeze(1).expand_as(changed)] = 7
    torch.testing.assert_close(loss_of(change(batch, changed)), loss_of(batch))


def test_the_first_live_columns_late_codes_cost_nothing_and_its_text_does() -> None:
    batch = make_batch(1, is_own=True)
    first = int((batch.role[0] > PROMPT).nonzero()[0])
    only = torch.where(torch.arange(LENGTH) == first, batch.role, PROMPT)
    alone = Batch(batch.columns, batch.heard, only)
    late, text = batch.columns.clone(), batch.columns.clone()
    late[0, 2:9, first] += 1
    text[0, 0, first] = 17
    base = loss_of(alone)
    torch.testing.assert_close(loss_of(change(alone, late)), base)
    assert loss_of(change(alone, text))[0] != base[0]


def test_whole_facts_are_counted_piece_by_piece() -> None:
    net = TrainingLm(SIZES)
    batch = make_batch(2)
    counts = judge(net, batch, dtype=torch.float32)
    assert counts[1] == 2 and counts[3] == 2
    # a fact of two pieces counts as one
    role = torch.where((batch.role % MUTE == LIVE) & (batch.columns[:, 0] == 11), FACT, batch.role)
    counts = judge(net, Batch(batch.columns, batch.heard, role), dtype=torch.float32)
    assert counts[1] == 2 and counts[3] == 4


def test_training_learns_the_facts_of_its_calls() -> None:
    weights = LossWeights(depth_share=0.01, agent_noise=0.0, user_noise=0.0, jump_share=0.0)
    trainer, schedule = make_trainer(weights), Schedule(peak=5e-3, warmup_steps=10)
    calls = make_batch(8)
    for step in range(120):
        trainer.step(calls, schedule.rate(step, 0.0))
    whole, all_facts, *_, heard, all_heard = judge(trainer.net, calls, dtype=torch.float32)
    assert whole >= 7 and all_facts == 8
    assert heard >= 7 and all_heard == 8


def test_training_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    def go_on(trainer: Trainer, first: int, last: int) -> torch.Tensor:
        for step in range(first, last):
            torch.manual_seed(step)
            trainer.step(make_batch(2, seed=step), 1e-3)
        return trainer.net.tables.detach().clone()

    straight = make_trainer()
    go_on(straight, 0, 2)
    save(tmp_path, straight, Progress(steps=2, elapsed_s=1.5, calls=4, commands=1))
    expected = go_on(straight, 2, 4)
    resumed = make_trainer()
    progress, has_moments = restore(tmp_path, resumed)
    assert progress == Progress(2, 1.5, 4, 1) and has_moments
    torch.testing.assert_close(go_on(resumed, 2, 4), expected)
    (tmp_path / "state.pt").unlink()
    weights_only = make_trainer()
    progress, has_moments = restore(tmp_path, weights_only)
    assert progress == Progress(2, 1.5, 4, 1) and not has_moments
    torch.testing.assert_close(
        weights_only.net.heard_head, straight.net.heard_head, atol=0.02, rtol=0
    )


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    trainer = make_trainer()
    with torch.no_grad():
        trainer.net.text_head[0, 0] = torch.nan
    with pytest.raises(RuntimeError, match="diverged"):
        save(tmp_path, trainer, Progress())
    assert not list(tmp_path.iterdir())


def make_planner() -> Callable[[np.random.Generator, bool], FakePlan]:
    return plan_fake_call


def test_worker_processes_plan_calls_that_differ() -> None:
    with PlanSource(make_planner, workers=1, seed=(0, 0)) as source:
        plans = source.take() + source.take()
    assert len(plans) == 2 * PLANS_A_PARCEL
    assert len({plan.persona for plan in plans}) > 8


def test_agent_rows_of_prompts_hold_the_voice() -> None:
    batch = make_batch(1)
    codes = fake_codes(fake_utterances())
    start = codes.start[5]
    voice = codes.codes[:, start : start + 4]
    assert torch.equal(batch.columns[0, AGENT][0, 1:4], voice[0, 1:])
    assert torch.equal(batch.columns[0, AGENT][1:, 2:5], voice[1:, 1:])


def test_half_precision_changes_the_loss_little() -> None:
    batch = make_batch(3, is_own=None)
    torch.manual_seed(0)
    net = TrainingLm(SIZES)
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        loss, metrics = TrainingLoss(quiet_weights(), dtype=dtype, device=CPU)(net, batch)
        loss.backward()
        losses.append(metrics)
        judge(net, batch, dtype=dtype)
    torch.testing.assert_close(losses[1], losses[0], rtol=0.02, atol=0.02)
    assert all(weight.grad is not None for weight in net.parameters())
    assert all(weight.grad.dtype == torch.float32 for weight in net.parameters())
