"""A conversation without a clock, on a fake core: which frame is heard when."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_TOKEN_ROWS
from livekit_personaplex.engine.core_protocol import AgentStep, TickResult
from livekit_personaplex.engine.offline import converse
from livekit_personaplex.sampling import Sampling


class FakeDecoder:
    def push(self, token: int) -> str:
        return f" {token}" if token % 2 else ""


class FakeCore:
    """Needs three ticks to open; step n answers with n and what it heard."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.opening = 3
        self.is_open = False
        self.heard: list[int | None] = []
        self.fails_at = fails_at

    num_slots = 1
    voices = ("V",)

    def prepare(self, voice: str, persona: str) -> None:
        raise AssertionError("the caller prepares")

    def open(self, slot: int, plan: object, sampling: Sampling) -> None:
        self.is_open = True

    def close(self, slot: int) -> None:
        self.is_open = False

    def tick(self, frames: Mapping[int, NDArray[np.int16] | None]) -> TickResult:
        if not frames:
            self.opening -= 1
            return TickResult([], [0] if self.opening == 0 else [])
        assert self.opening == 0, "stepped before its prompt was done"
        if len(self.heard) == self.fails_at:
            raise RuntimeError("broken")
        frame = frames[0]
        self.heard.append(None if frame is None else int(frame[0]))
        index = len(self.heard) - 1
        pcm = np.full(FRAME_SAMPLES, index, dtype=np.int16)
        return TickResult([AgentStep(0, pcm, np.full(NUM_TOKEN_ROWS, index))], [])

    def text_decoder(self) -> FakeDecoder:
        return FakeDecoder()


def frames(count: int) -> list[NDArray[np.int16]]:
    return [np.full(FRAME_SAMPLES, 100 + index, dtype=np.int16) for index in range(count)]


def test_step_n_hears_the_frames_before_it_and_every_frame_has_an_answer() -> None:
    core = FakeCore()
    said = converse(core, None, Sampling(seed=0), frames(4))  # type: ignore[arg-type]
    assert core.heard == [None, 100, 101, 102]
    assert said.tokens.shape == (NUM_TOKEN_ROWS, 4)
    assert said.tokens[0].tolist() == [0, 1, 2, 3]
    assert said.pcm[::FRAME_SAMPLES].tolist() == [0, 1, 2, 3]


def test_words_carry_the_time_of_their_frame() -> None:
    said = converse(FakeCore(), None, Sampling(seed=0), frames(4))  # type: ignore[arg-type]
    assert said.text == " 1 3"
    assert said.timed_texts() == [(80, " 1"), (240, " 3")]


def test_the_slot_is_given_back_also_when_a_step_fails() -> None:
    core = FakeCore(fails_at=2)
    with pytest.raises(RuntimeError):
        converse(core, None, Sampling(seed=0), frames(4))  # type: ignore[arg-type]
    assert not core.is_open
