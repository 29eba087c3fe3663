"""Conversations through the product's engine core, many at once, and what was said in them.

Legend: N frames of a call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, split_frames
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.core_protocol import AgentStep
from livekit_personaplex.engine.sizing import EngineSizes
from livekit_personaplex.model.personaplex import load_personaplex
from livekit_personaplex.sampling import Sampling

_PROMPT_ROWS = 128
_LINE_GAP_FRAMES = 14
_LOUD_RMS = 0.01
_FIRST_WORD = 4
"""Text ids below are PAD, EPAD and control."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call to be held: persona, voice, sampling with a seed, and the caller's sound."""

    persona: str
    voice: str
    sampling: Sampling
    caller: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Line:
    """Words that the agent said in a row, and when their text began and ended."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """What the agent said in a call.

    Attributes:
        tokens: ``[9, N] int64``.
        pcm: ``[N * 1920] int16``.
        lines: Its words.
    """

    tokens: NDArray[np.int64]
    pcm: NDArray[np.int16]
    lines: list[Line]

    def words_between(self, start_s: float, end_s: float) -> str:
        """Give the words whose text lies in a span of time, lower case."""
        return " ".join(
            line.text for line in self.lines if line.end_s > start_s and line.start_s < end_s
        ).lower()

    def loud(self) -> NDArray[np.bool_]:
        """``[4 * N]``: in which 20 ms the agent can be heard."""
        parts = self.pcm.reshape(-1, FRAME_SAMPLES // 4).astype(np.float32) / 32768.0
        loud: NDArray[np.bool_] = np.sqrt((parts**2).mean(1)) > _LOUD_RMS
        return loud


def open_core(
    checkpoint: Path, device: torch.device, *, slots: int, speaks: bool = True
) -> EngineCore:
    """Load a checkpoint for many calls at once; bfloat16 on a GPU."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = load_personaplex(str(checkpoint), device=device, dtype=dtype)
    sizes = EngineSizes(slots, slots, _PROMPT_ROWS, dtype, slot_bytes=0)
    return EngineCore(model, sizes, speaks=speaks)


def hold_calls(core: EngineCore, requests: Sequence[Request]) -> list[Spoken]:
    """Hold calls, as many at once as the core has slots; results in the order of the requests."""
    said: list[Spoken] = []
    for first in range(0, len(requests), core.num_slots):
        said += _hold_together(core, requests[first : first + core.num_slots])
    return said


def _hold_together(core: EngineCore, requests: Sequence[Request]) -> list[Spoken]:
    frames = [split_frames(request.caller) for request in requests]
    steps: list[list[AgentStep]] = [[] for _ in requests]
    for slot, request in enumerate(requests):
        core.open(slot, core.prepare(request.voice, request.persona), request.sampling)
    opened: set[int] = set()
    while len(opened) < len(requests):
        opened.update(core.tick({}).opened)
    for index in range(max(len(call) for call in frames)):
        heard = {
            slot: call[index - 1] if index else None
            for slot, call in enumerate(frames)
            if index < len(call)
        }
        for step in core.tick(heard).steps:
            steps[step.slot].append(step)
    for slot in range(len(requests)):
        core.close(slot)
    return [_spoken(core, call) for call in steps]


def _spoken(core: EngineCore, steps: Sequence[AgentStep]) -> Spoken:
    tokens = np.stack([step.tokens for step in steps], axis=1)
    pcm = np.concatenate([step.pcm for step in steps])
    return Spoken(tokens, pcm, find_lines(core, tokens[0]))


def find_lines(core: EngineCore, text: NDArray[np.int64]) -> list[Line]:
    """Cut a row of text tokens into lines at its pauses."""
    lines: list[Line] = []
    at = np.flatnonzero(text >= _FIRST_WORD)
    if not len(at):
        return lines
    for run in np.split(at, np.flatnonzero(np.diff(at) > _LINE_GAP_FRAMES) + 1):
        decoder = core.text_decoder()
        words = "".join(decoder.push(int(token)) for token in text[run]) + decoder.flush()
        lines.append(Line(run[0] * FRAME_S, (run[-1] + 1) * FRAME_S, words.strip()))
    return lines
