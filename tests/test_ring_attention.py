"""Ring attention against a plain transformer's: every position, past the end of the ring."""

import math

import pytest
import torch

from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.kernels.kv_rings import KvRings, bytes_per_slot
from livekit_personaplex.kernels.ring_attention import attend_rings, rotate_and_write
from livekit_personaplex.kernels.rotation import apply_rope, rope_tables
from livekit_personaplex.kernels.rows import Rows

HEADS, HEAD_DIM, CONTEXT = 2, 8, 10


def make_rings(*, capacity: int, num_slots: int = 2, dtype: torch.dtype = torch.float32) -> KvRings:
    shape = (1, num_slots, HEADS, capacity, HEAD_DIM)
    return KvRings.create(shape, dtype=dtype, device=torch.device("cpu")).layer(0)


def run(rings: KvRings, projected: torch.Tensor, slots: list[int], positions: list[int]):  # type: ignore[no-untyped-def]
    rows = Rows(
        slots=torch.tensor(slots),
        positions=torch.tensor(positions),
        mask=torch.ones(len(slots), dtype=torch.bool),
    )
    cos, sin = rope_tables(rows.positions, head_dim=HEAD_DIM, max_period=10_000.0)
    query = rotate_and_write(projected, cos, sin, rows, rings)
    return attend_rings(query, rows, rings, context=CONTEXT)


def brute_force(projected: torch.Tensor, *, window: int) -> torch.Tensor:
    """Causal attention of a whole ``[T, 3 * H * D]`` over the last ``window`` positions."""
    length = len(projected)
    heads = projected.view(length, 3, HEADS, HEAD_DIM)
    cos, sin = rope_tables(torch.arange(length), head_dim=HEAD_DIM, max_period=10_000.0)
    query, key = apply_rope(heads[:, 0], cos, sin), apply_rope(heads[:, 1], cos, sin)
    scores = torch.einsum("thd,shd->hts", query, key) / math.sqrt(HEAD_DIM)
    age = torch.arange(length).unsqueeze(1) - torch.arange(length)
    scores = scores.masked_fill((age < 0) | (age >= window), float("-inf"))
    return torch.einsum("hts,shd->thd", scores.softmax(-1), heads[:, 2])


@pytest.mark.parametrize("capacity", [CONTEXT, CONTEXT + 4])
def test_the_full_window_is_one_short(capacity: int) -> None:
    projected = torch.randn(5 * CONTEXT, 3 * HEADS * HEAD_DIM)
    rings = make_rings(capacity=capacity)
    said = torch.cat([run(rings, row.unsqueeze(0), [1], [t]) for t, row in enumerate(projected)])
    assert (said - brute_force(projected, window=CONTEXT - 1)).abs().max() < 1e-6
    assert (said - brute_force(projected, window=CONTEXT)).abs().max() > 1e-3


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_rows_of_one_slot_in_a_batch_are_like_steps_one_by_one(rows: int) -> None:
    projected = torch.randn(36, 3 * HEADS * HEAD_DIM)
    rings = make_rings(capacity=CONTEXT + rows)
    said = torch.cat(
        [
            run(rings, projected[t : t + rows], [0] * rows, list(range(t, t + rows)))
            for t in range(0, 36, rows)
        ]
    )
    assert (said - brute_force(projected, window=CONTEXT - 1)).abs().max() < 1e-6


def test_what_a_slot_held_before_is_never_seen() -> None:
    rings = make_rings(capacity=CONTEXT + 1)
    rings.keys.fill_(float("nan"))
    rings.values.fill_(float("nan"))
    projected = torch.randn(30, 3 * HEADS * HEAD_DIM)
    said = torch.cat([run(rings, row.unsqueeze(0), [0], [t]) for t, row in enumerate(projected)])
    assert (said - brute_force(projected, window=CONTEXT - 1)).abs().max() < 1e-6


def test_a_masked_row_leaves_no_trace_and_gives_zeros() -> None:
    rings = make_rings(capacity=CONTEXT)
    projected = torch.randn(2, 3 * HEADS * HEAD_DIM)
    rows = Rows(torch.tensor([0, 1]), torch.tensor([3, 3]), torch.tensor([False, True]))
    cos, sin = rope_tables(rows.positions, head_dim=HEAD_DIM, max_period=10_000.0)
    query = rotate_and_write(projected, cos, sin, rows, rings)
    said = attend_rings(query, rows, rings, context=CONTEXT)
    assert not rings.keys[0].any() and rings.keys[1].any()
    assert not said[0].any() and said[1].any()


def test_8_bit_rings_are_near_and_half_the_size() -> None:
    projected = torch.randn(30, 3 * HEADS * HEAD_DIM)
    rings = make_rings(capacity=CONTEXT, dtype=FP8)
    said = torch.cat([run(rings, row.unsqueeze(0), [0], [t]) for t, row in enumerate(projected)])
    expected = brute_force(projected, window=CONTEXT - 1)
    assert 0 < (said - expected).norm() / expected.norm() < 0.05
    sizes = {
        dtype: bytes_per_slot(layers=32, heads=32, head_dim=128, capacity=3000, dtype=dtype)
        for dtype in (torch.bfloat16, FP8)
    }
    assert 0.5 < sizes[FP8] / sizes[torch.bfloat16] < 0.52
    assert sizes[torch.bfloat16] == pytest.approx(1.57e9, rel=0.01)
