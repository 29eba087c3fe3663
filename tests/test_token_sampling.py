"""Draws follow the distribution they should have, and depend on seed, step and codebook alone."""

import pytest
import torch

from livekit_personaplex.kernels.token_sampling import sample_tokens
from livekit_personaplex.sampling import Sampling
from tests.conformance import make_core, user_frames

NUM_DRAWS = 40_000
LOGITS = torch.tensor([2.0, -1.0, 1.5, 0.0, 1.0, -0.5, 0.5, 1.9])


def draw(
    *,
    temperature: float = 1.0,
    top_k: int = 8,
    seeds: torch.Tensor | int = 1,
    steps: torch.Tensor | int = 0,
    codebook: int = 0,
) -> torch.Tensor:
    """Draw from `LOGITS` once for every seed and step."""
    zeros = torch.zeros(NUM_DRAWS, dtype=torch.int64)
    return sample_tokens(
        LOGITS.expand(NUM_DRAWS, -1),
        temperatures=torch.full((NUM_DRAWS,), temperature),
        top_ks=zeros + top_k,
        seeds=zeros + seeds,
        steps=zeros + steps,
        codebook=codebook,
    )


def assert_follows(tokens: torch.Tensor, expected: torch.Tensor) -> None:
    """Every token is as frequent as expected, within 4.5 standard deviations."""
    shares = torch.bincount(tokens, minlength=len(expected)).double() / len(tokens)
    deviation = (expected * (1 - expected) / len(tokens)).sqrt()
    assert ((shares - expected).abs() <= 4.5 * deviation).all(), (shares, expected)


@pytest.mark.parametrize("codebook", [0, 8])
@pytest.mark.parametrize("top_k", [8, 3])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("varying", ["steps", "seeds"])
def test_draws_follow_the_softmax_of_the_top_k(
    varying: str, temperature: float, top_k: int, codebook: int
) -> None:
    numbers = {varying: torch.arange(NUM_DRAWS)}
    tokens = draw(temperature=temperature, top_k=top_k, codebook=codebook, **numbers)
    kept = LOGITS.masked_fill(LOGITS < LOGITS.sort(descending=True).values[top_k - 1], -torch.inf)
    assert_follows(tokens, (kept.double() / temperature).softmax(0))


@pytest.mark.parametrize(
    ("first", "second"),
    [({"codebook": 1}, {"codebook": 2}), ({"seeds": 1}, {"seeds": 2})],
    ids=["codebooks", "seeds"],
)
def test_draws_of_one_step_are_independent(first: dict[str, int], second: dict[str, int]) -> None:
    steps = torch.arange(NUM_DRAWS)
    pairs = draw(steps=steps, **first) * len(LOGITS) + draw(steps=steps, **second)
    single = LOGITS.double().softmax(0)
    assert_follows(pairs, torch.outer(single, single).flatten())


def test_draws_of_neighbouring_steps_are_independent() -> None:
    tokens = draw(steps=torch.arange(NUM_DRAWS)).view(-1, 2)
    single = LOGITS.double().softmax(0)
    assert_follows(tokens[:, 0] * len(LOGITS) + tokens[:, 1], torch.outer(single, single).flatten())


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1e-40, 5e-324])
def test_a_temperature_of_next_to_nothing_is_greedy(temperature: float) -> None:
    drawn = Sampling(text_temperature=temperature, audio_temperature=temperature, seed=3)
    assert talk(drawn) == talk(Sampling(greedy=True, seed=3))


def talk(sampling: Sampling) -> list[list[int]]:
    """Tokens of a short conversation."""
    core = make_core("tiny16", num_slots=1, group_slots=1)
    core.open(0, core.prepare("TINY0", ""), sampling)
    while not core.tick({}).opened:
        pass
    frames = [None, *user_frames("tiny16")[:5]]
    return [core.tick({0: frame}).steps[0].tokens.tolist() for frame in frames]
