"""A session's tokens and PCM do not depend on who else is there, nor on who was there before."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.sampling import Sampling
from tests.conformance import make_core, user_frames

CHECKPOINT = "tiny16"
SAMPLED = Sampling(seed=77)
GREEDY = Sampling(greedy=True, seed=0)
SHAPES = ((1, 4), (4, 4), (2, 4))
"""(slots of a group, slots)"""


class Talk:
    """One session on a core, stepped from outside."""

    def __init__(
        self, core: EngineCore, slot: int, sampling: Sampling, *, persona: str, shift: int
    ) -> None:
        self.slot = slot
        self.frames: Iterator[NDArray[np.int16]] = iter(
            np.roll(user_frames(CHECKPOINT), shift, axis=0)
        )
        self.next_frame: NDArray[np.int16] | None = None
        self.is_open = False
        self.heard: list[tuple[bytes, bytes]] = []
        core.open(slot, core.prepare("TINY0", persona), sampling)


def tick(core: EngineCore, talks: list[Talk]) -> None:
    """Run a batch of prompts, and step every session that is open."""
    by_slot = {talk.slot: talk for talk in talks}
    for slot in core.tick({}).opened:
        by_slot[slot].is_open = True
    frames = {talk.slot: talk.next_frame for talk in talks if talk.is_open}
    for step in core.tick(frames).steps if frames else []:
        talk = by_slot[step.slot]
        talk.heard.append((step.tokens.tobytes(), step.pcm.tobytes()))
        talk.next_frame = next(talk.frames)


def talk_alone(
    shape: tuple[int, int], slot: int, sampling: Sampling, steps: int
) -> list[tuple[bytes, bytes]]:
    core = make_core(CHECKPOINT, num_slots=shape[1], group_slots=shape[0])
    talk = Talk(core, slot, sampling, persona="You are kind.", shift=0)
    while len(talk.heard) < steps:
        tick(core, [talk])
    return talk.heard


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_neighbours_that_join_and_leave_change_nothing(
    shape: tuple[int, int], sampling: Sampling
) -> None:
    alone = talk_alone(shape, 1, sampling, steps=60)
    core = make_core(CHECKPOINT, num_slots=shape[1], group_slots=shape[0])
    first = Talk(core, 0, Sampling(seed=5), persona="You are loud.", shift=7)
    tick(core, [first])
    talks = [first, Talk(core, 1, sampling, persona="You are kind.", shift=0)]
    watched = talks[1]
    number = 0
    while len(watched.heard) < 60:
        number += 1
        if number % 9 == 0:  # a neighbour leaves, mid-prompt as often as mid-call
            gone = talks.pop() if talks[-1] is not watched else talks.pop(0)
            core.close(gone.slot)
        free = {0, 2, 3} - {talk.slot for talk in talks}
        if number % 4 == 0 and free:
            slot = min(free)
            talks.append(Talk(core, slot, Sampling(seed=number), persona="x" * number, shift=slot))
        tick(core, [talk for talk in talks if talk is watched or number % 3])
    assert watched.heard == alone


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_recycled_slot_is_like_a_new_one(shape: tuple[int, int]) -> None:
    fresh = talk_alone(shape, 2, SAMPLED, steps=50)
    core = make_core(CHECKPOINT, num_slots=shape[1], group_slots=shape[0])
    for left_after in (1, 9, 70):
        former = Talk(core, 2, Sampling(seed=left_after), persona="You were here.", shift=3)
        for _ in range(left_after):
            tick(core, [former])
        core.close(2)
    talk = Talk(core, 2, SAMPLED, persona="You are kind.", shift=0)
    while len(talk.heard) < 50:
        tick(core, [talk])
    assert talk.heard == fresh


def test_every_slot_gives_the_same() -> None:
    results = [talk_alone((4, 4), slot, SAMPLED, steps=45) for slot in range(4)]
    assert all(result == results[0] for result in results)


def test_state_tensors_are_never_rebound() -> None:
    core = make_core(CHECKPOINT, num_slots=2, group_slots=2)
    tensors = [
        *(core.state.lm.offsets, core.state.lm.tokens, core.state.lm.provided),
        *(core.state.lm.rings.keys, core.state.lm.rings.values),
        *(core.state.encoder.tails, core.state.encoder.rings, core.state.encoder.positions),
        *(core.state.decoder.tails, core.state.decoder.rings, core.state.decoder.positions),
    ]
    before = [tensor.data_ptr() for tensor in tensors]
    talk = Talk(core, 0, SAMPLED, persona="", shift=0)
    for _ in range(12):
        tick(core, [talk])
    assert [tensor.data_ptr() for tensor in tensors] == before
