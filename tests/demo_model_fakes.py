"""A bank of noise, a planner of little calls and a codec of hashes, in the demo model's forms."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from examples.demo_model.lm.agents import AgentCodes, Utterances, encode_agents
from examples.demo_model.lm.batches import Assembler
from livekit_personaplex.audio import FRAME_SAMPLES

LIVE_FRAMES = 24
LENGTH = 64
TEXT_CARD = 40
NAMES = range(20, 36)
ASK, NAME_IS = 10, 11


@dataclass(frozen=True)
class FakePlacement:
    utterance: int
    other: int
    frame: int
    end_frame: int


@dataclass
class FakePlan:
    persona: str
    prompt: int
    frames: int
    caller: list[tuple[int, int]]
    text: NDArray[np.int16]
    heard: NDArray[np.int16]
    fact: NDArray[np.bool_]
    agent: list[FakePlacement] = field(default_factory=list)
    pace: float = 1.0


def fake_utterances(count: int = 6, frames: int = 4) -> Utterances:
    """Utterances of noise, each in a level of its own; the last one is a voice prompt."""
    draw = np.random.default_rng(0)
    level = np.repeat(np.arange(1, count + 1), frames * FRAME_SAMPLES) * 1000.0
    audio = torch.from_numpy((draw.standard_normal(len(level)) * level / 8).astype(np.int16))
    start = np.arange(count) * frames * FRAME_SAMPLES
    return Utterances(audio, start, np.full(count, frames, np.int32))


def fake_encode(audio: torch.Tensor) -> torch.Tensor:
    """Codes that tell how loud a frame is; silence is code 0 in all books but the offsets."""
    level = audio.squeeze(1).unflatten(1, (-1, FRAME_SAMPLES)).abs().mean(2)
    first = (level * 2000).long().clamp(max=2000)
    return torch.stack([(first + book) % 2048 for book in range(8)], 1)


def plain_line(
    track: torch.Tensor, generator: torch.Generator, leak: torch.Tensor | None
) -> torch.Tensor:
    return track


def fake_codes(sounds: Utterances) -> AgentCodes:
    prompt = len(sounds.start) - 1
    prompts = {prompt: sounds.samples(prompt)}
    return encode_agents(sounds, [0, 1, 2], prompts, fake_encode, lead_frames=3, at_once=2)


def fake_assembler() -> Assembler:
    sounds = fake_utterances()
    return Assembler(
        sounds=sounds,
        agents=fake_codes(sounds),
        encode=fake_encode,
        line=plain_line,
        tokenize=lambda text: [int(word) for word in text.split() if word.isdigit()],
        text_card=TEXT_CARD,
        length=LENGTH,
        at_once=2,
    )


def plan_fake_call(draw: np.random.Generator, held: bool) -> FakePlan:
    """A persona is three pieces, the last one a name; asked for it, the agent says it."""
    name = int(draw.choice(NAMES))
    at = int(draw.integers(6, 10))
    text = np.full(LIVE_FRAMES, 3, np.int16)
    heard = np.full(LIVE_FRAMES, 3, np.int16)
    fact = np.zeros(LIVE_FRAMES, np.bool_)
    heard[at - 3] = ASK
    text[at - 1], text[at], text[at + 1] = 0, NAME_IS, name
    fact[at + 1] = True
    agent = [FakePlacement(int(draw.integers(3)), int(draw.integers(3)), at, at + 4)]
    return FakePlan(
        f"4 5 {name}", 5, LIVE_FRAMES, [(3, 2 * FRAME_SAMPLES)], text, heard, fact, agent
    )
