"""The engine on a GPU: recorded stages give the reference's tokens, alone and beside others."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.bench.ticks import bench_plan, make_core
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.offline import converse
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.random_model import random_personaplex
from livekit_personaplex.sampling import Sampling
from tests import conformance

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(590),
]

FULL_FRAMES = 3200
"""Past the ring of the real model: 3,000 steps of context and the rows of a prompt."""
NUM_SLOTS = 64


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("checkpoint", conformance.CHECKPOINTS)
def test_recorded_stages_give_the_reference_tokens(checkpoint: str, case: conformance.Case) -> None:
    core = conformance.make_core(
        checkpoint, num_slots=3, group_slots=3, prompt_rows=64, device="cuda"
    )
    plan = core.prepare(case.voice, conformance.persona(checkpoint, case))
    said = converse(core, plan, conformance.GREEDY, conformance.user_frames(checkpoint))
    expected = conformance.golden(checkpoint)[f"{case.name}.tokens"][:9].numpy()
    np.testing.assert_array_equal(said.tokens, expected)


def test_a_full_size_session_is_the_same_alone_beside_63_and_in_a_recycled_slot() -> None:
    model = random_personaplex(0, device=torch.device("cuda"), dtype=torch.bfloat16)
    core = make_core(model, num_slots=NUM_SLOTS, kv_dtype=torch.bfloat16)
    watched = {5: Sampling(seed=11), 40: Sampling(greedy=True, seed=0)}
    alone = {slot: _talk(core, {slot: sampling})[slot] for slot, sampling in watched.items()}
    crowded = _talk(core, watched, crowd=True)
    for slot in watched:
        assert len(set(alone[slot])) > FULL_FRAMES // 2, "a session that varies"
        assert crowded[slot] == alone[slot]


def test_a_full_size_session_with_fp8_rings_is_the_same_alone_and_beside_others() -> None:
    model = random_personaplex(0, device=torch.device("cuda"), dtype=torch.bfloat16)
    core = make_core(model, num_slots=16, kv_dtype=FP8)
    alone = _talk(core, {5: Sampling(seed=11)}, num_frames=300)
    crowded = _talk(core, {5: Sampling(seed=11)}, crowd=True, num_frames=300)
    assert crowded == alone


def _talk(
    core: EngineCore,
    watched: dict[int, Sampling],
    *,
    crowd: bool = False,
    num_frames: int = FULL_FRAMES,
) -> dict[int, list[bytes]]:
    """Run the watched sessions; a crowd fills every other slot, joining and leaving all the time.

    Slots are left as they are in the end, so that the next run recycles them.
    """
    plan = bench_plan(core)
    crowd_slots = [slot for slot in range(core.num_slots) if slot not in watched and crowd]
    frames = {slot: _frames(slot) for slot in [*watched, *crowd_slots]}
    waiting: dict[int, NDArray[np.int16] | None] = {}
    heard: dict[int, list[bytes]] = {slot: [] for slot in watched}
    opening: set[int] = set()

    def join(slot: int, sampling: Sampling) -> None:
        core.close(slot)
        core.open(slot, plan, sampling)
        opening.add(slot)

    for slot, sampling in watched.items():
        join(slot, sampling)
    tick = 0
    while any(len(said) < num_frames for said in heard.values()):
        if crowd_slots:
            slot = crowd_slots[tick % len(crowd_slots)]
            if tick < len(crowd_slots) or tick % 5 == 0:
                waiting.pop(slot, None)
                join(slot, Sampling(seed=1000 + tick))
        skipped = {slot for slot in crowd_slots if (slot + tick) % 7 == 0}
        for slot in core.tick({}).opened:
            opening.discard(slot)
            waiting[slot] = None
        due = {slot: pcm for slot, pcm in waiting.items() if slot not in skipped}
        for step in core.tick(due).steps if due else []:
            waiting[step.slot] = next(frames[step.slot])
            if step.slot in heard and len(heard[step.slot]) < num_frames:
                heard[step.slot].append(step.tokens.tobytes() + step.pcm.tobytes())
        tick += 1
    for slot in [*watched, *crowd_slots]:
        core.close(slot)
    return heard


def _frames(slot: int) -> Iterator[NDArray[np.int16]]:
    """A caller's endless noise, the same every time."""
    rng = np.random.default_rng(slot)
    while True:
        yield rng.normal(0, 3000, FRAME_SAMPLES).astype(np.int16)
