"""The system prompt as positions: what is forced, where it ends, and what is refused."""

import numpy as np
import pytest

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.prompt import (
    PAD_TOKEN,
    SILENCE_CODES,
    SINE_CODES,
    build_prompt,
    max_persona_tokens,
    tag_persona,
)
from livekit_personaplex.model.voices import Voice

CONFIG = PersonaPlexConfig()
FRAMES = 5


def spoken_voice() -> Voice:
    codes = np.arange(8 * FRAMES).reshape(8, FRAMES)
    return Voice("ANN", codes=codes)


def saved_voice() -> Voice:
    width = CONFIG.temporal_config.hidden_size
    rng = np.random.default_rng(0)
    return Voice(
        "ANN",
        embeddings=rng.standard_normal((FRAMES - 1, width), dtype=np.float32),
        cache=rng.integers(4, 2000, (17, 4)),
    )


def test_positions_are_one_fewer_than_steps() -> None:
    plan = build_prompt(CONFIG, spoken_voice(), [50, 60, 70])
    assert plan.first_step == FRAMES + 6 + 3 + 6
    assert plan.num_positions == plan.first_step - 1


def test_both_forms_of_a_voice_end_alike() -> None:
    spoken = build_prompt(CONFIG, spoken_voice(), [50])
    saved = build_prompt(CONFIG, saved_voice(), [50])
    assert saved.first_step == spoken.first_step
    np.testing.assert_array_equal(saved.columns[-10:], spoken.columns[-10:])
    np.testing.assert_array_equal(saved.tokens, spoken.tokens)
    np.testing.assert_array_equal(saved.provided, spoken.provided)


def test_columns_carry_the_delays() -> None:
    plan = build_prompt(CONFIG, spoken_voice(), [50, 60])
    column = plan.columns[FRAMES + 6]  # the model's input that holds the first token of the persona
    assert column[0] == 50
    assert tuple(column[1:9]) == SILENCE_CODES
    assert tuple(column[9:]) == SINE_CODES
    second = plan.columns[2]
    assert second[0] == PAD_TOKEN and second[1] == 2, "codebook 0 of frame 2 ..."
    assert second[2] == FRAMES + 1, "... beside codebook 1 of frame 1"


def test_the_very_first_column_is_initial_tokens() -> None:
    plan = build_prompt(CONFIG, spoken_voice(), [])
    assert plan.columns[0][0] == 32_000
    assert (plan.columns[0][1:] == 2_048).all()


def test_the_agent_side_of_the_last_frame_is_still_given_at_the_first_live_step() -> None:
    plan = build_prompt(CONFIG, spoken_voice(), [])
    target = plan.first_step % 4
    assert plan.provided[2:9, target].all() and not plan.provided[:2, target].any()


@pytest.mark.parametrize("persona", ["", "   ", "\n"])
def test_an_empty_persona_stays_empty(persona: str) -> None:
    assert tag_persona(persona) == ""


def test_a_persona_is_tagged_once() -> None:
    assert tag_persona(" You are Ann. ") == "<system> You are Ann. <system>"
    assert tag_persona("<system> You are Ann. <system>") == "<system> You are Ann. <system>"
    assert tag_persona("<system> You") == "<system> <system> You <system>"


def test_a_persona_that_would_fill_the_window_is_refused() -> None:
    limit = max_persona_tokens(CONFIG)
    assert limit == 2000
    build_prompt(CONFIG, spoken_voice(), [5] * limit)
    with pytest.raises(ConfigError, match=r"2001 tokens, but at most 2000 fit .* 3000 steps"):
        build_prompt(CONFIG, spoken_voice(), [5] * (limit + 1))
