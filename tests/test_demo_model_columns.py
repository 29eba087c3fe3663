"""Training columns and layers of the demo model against the product's own step."""

import functools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from examples.demo_model.lm.columns import AGENT, USER, delay_frames, prompt_frames, silent_frames
from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.names import load_product_tensors, product_tensors
from examples.demo_model.sizes import (
    SIZES,
    DepformerSizes,
    MimiSizes,
    Sizes,
    TemporalSizes,
    checkpoint_bytes,
    product_config,
)
from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.model.lm import LanguageModel
from livekit_personaplex.model.lm_state import RING_COLUMNS, LmState
from livekit_personaplex.model.lm_weights import load_language_model
from livekit_personaplex.model.prompt import PromptPlan, build_prompt
from livekit_personaplex.model.voices import Voice
from livekit_personaplex.model.weights import Shape
from livekit_personaplex.sampling import Sampling

TINY = Sizes(
    mimi=MimiSizes(num_filters=4, width=16, heads=2, layers=1, hidden=32, context=16, vq_dim=8),
    temporal=TemporalSizes(width=32, heads=2, layers=3, context=200),
    depformer=DepformerSizes(width=16, heads=2, layers=2),
    text_card=40,
)
LIVE_FRAMES = 30


class DictSource:
    """Tensors in memory, as the product's loader asks for them."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors
        self.names = frozenset(tensors)

    def check(self, expected: dict[str, Shape], optional: dict[str, Shape] | None = None) -> None:
        assert {name: tuple(tensor.shape) for name, tensor in self.tensors.items()} == expected

    def read(self, name: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        return self.tensors[name].to(device, dtype)


@functools.cache
def networks() -> tuple[TrainingLm, LanguageModel]:
    torch.manual_seed(0)
    net = TrainingLm(TINY)
    source = DictSource(product_tensors(net))
    config = product_config(TINY)
    lm = load_language_model(config, source, device=torch.device("cpu"), dtype=torch.float32)
    return net, lm


@functools.cache
def call(persona_length: int) -> tuple[NDArray[np.int64], list[int], torch.Tensor]:
    """Voice codes, persona ids and live frames, all random."""
    draw = np.random.default_rng(persona_length)
    voice = draw.integers(0, 2048, (8, 11))
    persona = draw.integers(4, TINY.text_card, persona_length).tolist()
    live = torch.from_numpy(draw.integers(0, 2048, (17, LIVE_FRAMES)))
    live[0] = torch.from_numpy(draw.integers(0, TINY.text_card, LIVE_FRAMES))
    return voice, persona, live


def open_slot(lm: LanguageModel, plan: PromptPlan) -> LmState:
    """Run a system prompt as the engine does and give the state it leaves."""
    state = LmState.create(
        lm.config,
        num_slots=1,
        capacity=TINY.temporal.context + plan.num_positions,
        device=torch.device("cpu"),
        kv_dtype=torch.float32,
    )
    greedy = Sampling(greedy=True, seed=0)
    state.begin(
        0, offset=plan.first_step, tokens=plan.tokens, provided=plan.provided, sampling=greedy
    )
    positions = torch.arange(plan.num_positions)
    rows = Rows(torch.zeros_like(positions), positions, torch.ones(len(positions)).bool())
    lm.prompt(lm.embed(torch.from_numpy(plan.columns)), rows, state)
    return state


def force_agent(state: LmState, frame: torch.Tensor, delays: tuple[int, ...]) -> None:
    """Give a step the text and agent codes that it would else draw."""
    step = int(state.offsets[0])
    for row in range(9):
        column = (step + delays[row]) % RING_COLUMNS
        state.tokens[0, row, column] = frame[row]
        state.provided[0, row, column] = True


@pytest.mark.parametrize("persona_length", [0, 1, 17])
def test_columns_are_the_live_inputs_from_the_first_step_on(persona_length: int) -> None:
    net, lm = networks()
    voice, persona, live = call(persona_length)
    plan = build_prompt(lm.config, Voice("V", codes=voice), persona)
    state = open_slot(lm, plan)
    prompt = prompt_frames(torch.from_numpy(voice), persona)
    columns = delay_frames(torch.cat((prompt, live), 1), TINY.text_card)
    first = plan.num_positions + 1
    assert prompt.shape[1] == first
    np.testing.assert_array_equal(columns[:, : first - 1].T, plan.columns)
    with torch.inference_mode():
        positions = torch.arange(columns.shape[1] - 1).unsqueeze(0)
        hidden, _ = net.trunk(columns[None, :, :-1], positions)
        text_logits = net.text_logits(hidden)[0]
        audio_logits = net.depth(hidden[0], columns[:9, 1:].T)
        for frame in range(LIVE_FRAMES):
            force_agent(state, live[:9, frame], lm.config.delays)
            output = lm.step(
                state,
                user_codes=live[USER, frame - 1].unsqueeze(0),
                has_user=torch.tensor([frame > 0]),
                exec_mask=torch.ones(1, dtype=torch.bool),
            )
            at = first - 1 + frame
            torch.testing.assert_close(text_logits[at], output.text_logits[0], atol=1e-4, rtol=0)
            codes = torch.stack(output.audio_logits)[:, 0]
            torch.testing.assert_close(audio_logits[:, at], codes, atol=1e-4, rtol=0)


def test_a_column_shifted_by_one_would_be_noticed() -> None:
    net, _ = networks()
    voice, persona, live = call(17)
    prompt = prompt_frames(torch.from_numpy(voice), persona)
    columns = delay_frames(torch.cat((prompt, live), 1), TINY.text_card)[None, :, :-1]
    positions = torch.arange(columns.shape[2]).unsqueeze(0)
    shifted = columns.clone()
    shifted[:, USER] = columns[:, USER].roll(1, dims=2)
    with torch.inference_mode():
        right, wrong = (net.trunk(given, positions)[0][0, -1] for given in (columns, shifted))
    assert (right - wrong).abs().max() > 1e-2


def test_weights_survive_the_checkpoint_names() -> None:
    net, _ = networks()
    torch.manual_seed(1)
    other = TrainingLm(TINY)
    load_product_tensors(other, product_tensors(net))
    expected = product_tensors(net)
    for name, tensor in product_tensors(other).items():
        assert torch.equal(tensor, expected[name]), name


def test_every_checkpoint_for_the_repository_is_at_most_48_mb() -> None:
    for name in ("small", "wide"):
        assert checkpoint_bytes(SIZES[name]) < 47_300_000, name


def test_silent_frames_are_pad_and_the_silence_of_both() -> None:
    frames = silent_frames(2, torch.device("cpu"))
    assert frames[0].tolist() == [3, 3]
    assert torch.equal(frames[AGENT], frames[USER])
