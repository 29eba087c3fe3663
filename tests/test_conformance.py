"""The reference's outputs, tensor by tensor, through the engine's own core."""

import numpy as np
import pytest
import torch

from livekit_personaplex.audio import pcm16_to_float
from livekit_personaplex.engine.offline import converse
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.model.lm import StepOutput
from livekit_personaplex.model.lm_state import LmState
from livekit_personaplex.model.prompt import tag_persona
from tests.conformance import (
    CASES,
    CHECKPOINTS,
    GREEDY,
    Case,
    golden,
    load_model,
    make_core,
    persona,
    user_frames,
)

TOKEN_ROWS = 9


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_greedy_conversation_equals_the_reference(checkpoint: str, case: Case) -> None:
    core = make_core(checkpoint)
    plan = core.prepare(case.voice, persona(checkpoint, case))
    said = converse(core, plan, GREEDY, user_frames(checkpoint))
    expected = golden(checkpoint)[f"{case.name}.tokens"][:TOKEN_ROWS].numpy()
    np.testing.assert_array_equal(said.tokens, expected)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_speech_equals_the_reference(checkpoint: str) -> None:
    core = make_core(checkpoint)
    plan = core.prepare("TINY0", persona(checkpoint, CASES[0]))
    said = converse(core, plan, GREEDY, user_frames(checkpoint))
    expected = golden(checkpoint)["pt_persona.pcm"].numpy()
    assert np.abs(expected).max() > 1.0, "the noise of these weights is loud: 16 bits clip it"
    difference = pcm16_to_float(said.pcm) - expected.clip(-1.0, 32767 / 32768)
    assert np.sqrt(np.mean(difference**2)) < 1e-4


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_speech_before_it_is_cut_to_16_bits_equals_the_reference(checkpoint: str) -> None:
    decoder = load_model(checkpoint).mimi.decoder
    codes = golden(checkpoint)["pt_persona.tokens"][1:TOKEN_ROWS].long().t()
    state = decoder.init_state(1, torch.device("cpu"))
    advance = torch.ones(1, dtype=torch.bool)
    with torch.inference_mode():
        pcm = torch.cat([decoder.decode(frame.unsqueeze(0), state, advance)[0] for frame in codes])
    difference = pcm - golden(checkpoint)["pt_persona.pcm"]
    assert difference.square().mean().sqrt() < 1e-4


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_logits_equal_the_reference(checkpoint: str) -> None:
    steps = run_steps(checkpoint, num_steps=8)
    text = torch.stack([step.text_logits[0] for step in steps])
    audio = torch.stack([torch.stack(step.audio_logits)[:, 0] for step in steps[:4]])
    expected = golden(checkpoint)
    assert (text - expected["pt_persona.text_logits"]).abs().max() < 1e-4
    assert (audio - expected["pt_persona.audio_logits"][:, :8]).abs().max() < 1e-4


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_personas_become_the_reference_tokens(checkpoint: str) -> None:
    text = tag_persona(persona(checkpoint, CASES[0]))
    ids = load_model(checkpoint).tokenizer.encode(text)
    assert ids == golden(checkpoint)["persona.ids"].tolist()


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_spoken_voice_becomes_the_reference_embeddings(checkpoint: str) -> None:
    model = load_model(checkpoint)
    core = make_core(checkpoint)
    spoken = core.prepare("TINY0.wav", "")
    expected = golden(checkpoint)["voice.embeddings"]
    embedded = model.lm.embed(torch.from_numpy(spoken.columns[: len(expected)]))
    assert (embedded - expected.flatten(1)).abs().max() < 1e-4
    saved = core.prepare("TINY0", "")
    np.testing.assert_array_equal(spoken.tokens, saved.tokens)
    assert spoken.first_step == saved.first_step


def run_steps(checkpoint: str, *, num_steps: int) -> list[StepOutput]:
    """The golden conversation's first live steps, run on the language model alone."""
    model = load_model(checkpoint)
    plan = make_core(checkpoint).prepare("TINY0", persona(checkpoint, CASES[0]))
    count = plan.num_positions
    with torch.inference_mode():
        state = LmState.create(
            model.config,
            num_slots=1,
            capacity=model.config.temporal_config.context + count,
            device=model.device,
            kv_dtype=torch.float32,
        )
        state.begin(
            0,
            offset=plan.first_step,
            tokens=plan.tokens,
            provided=plan.provided,
            sampling=GREEDY,
        )
        x = model.lm.embed(torch.from_numpy(plan.columns))
        x[: len(plan.embeddings)] = torch.from_numpy(plan.embeddings)
        rows = Rows(
            slots=torch.zeros(count, dtype=torch.int64),
            positions=torch.arange(count),
            mask=torch.ones(count, dtype=torch.bool),
        )
        model.lm.prompt(x, rows, state)
        codes = golden(checkpoint)["mimi.codes"].long()
        return [
            model.lm.step(
                state,
                user_codes=codes[:, max(0, n - 1)].unsqueeze(0),
                has_user=torch.tensor([n > 0]),
                exec_mask=torch.tensor([True]),
            )
            for n in range(num_steps)
        ]


def test_a_persona_is_as_long_as_it_is_said_to_be() -> None:
    core = make_core("tiny16")
    persona = "You are Bob. "
    while core.measure_persona(persona).tokens <= core.measure_persona(persona).max_tokens:
        accepted, persona = persona, persona + "You are Bob. "
    core.prepare("TINY0", accepted)
    with pytest.raises(ConfigError, match=f"has {core.measure_persona(persona).tokens} tokens"):
        core.prepare("TINY0", persona)
