"""Attention over per-slot rings on a GPU; what it computes is said in ``ring_attention``.

One program handles a fixed range of ring entries of one row and head, and a second kernel joins
the ranges in order. Ranges are fixed by the capacity alone and nothing is summed atomically, so a
row's bits never depend on its neighbours. Entries a row does not see are not read.

Legend: R rows, S slots, H heads, C ring capacity, D head dim, N ranges of a ring.
"""

import math

import torch
import triton
import triton.language as tl

from livekit_personaplex.kernels.fp8 import FP8_MAX
from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.rows import Rows

_UNSEEN = tl.constexpr(-1e30)
"""Finite stand-in for the maximum of nothing, so that differences stay numbers."""


@triton.jit
def _store_pairs(
    ring, scales, entry, first, second, half,
    D: tl.constexpr, HAS_SCALES: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    if HAS_SCALES:
        largest = tl.maximum(tl.max(tl.abs(first), axis=0), tl.max(tl.abs(second), axis=0))
        scale = tl.maximum(largest, 1e-12) * (1.0 / LIMIT)
        first = tl.minimum(tl.maximum(first / scale, -LIMIT), LIMIT)
        second = tl.minimum(tl.maximum(second / scale, -LIMIT), LIMIT)
        tl.store(scales + entry, scale)
    where = ring + entry * D + 2 * half
    tl.store(where, first.to(ring.dtype.element_ty))
    tl.store(where + 1, second.to(ring.dtype.element_ty))


@triton.jit
def _rotate_and_write(
    projected, cos, sin, slots, positions, mask, queries,
    keys, values, key_scales, value_scales, capacity,
    H: tl.constexpr, D: tl.constexpr, HAS_SCALES: tl.constexpr, LIMIT: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    half = tl.arange(0, D // 2)
    c = tl.load(cos + row * (D // 2) + half)
    s = tl.load(sin + row * (D // 2) + half)
    source = projected + row * (3 * H * D) + head * D + 2 * half
    target = queries + (row * H + head) * D + 2 * half
    dtype = queries.dtype.element_ty
    first = tl.load(source).to(tl.float32)
    second = tl.load(source + 1).to(tl.float32)
    tl.store(target, (first * c - second * s).to(dtype))
    tl.store(target + 1, (first * s + second * c).to(dtype))
    if tl.load(mask + row):
        slot = tl.load(slots + row)
        entry = (slot * H + head) * capacity + tl.load(positions + row) % capacity
        first = tl.load(source + H * D).to(tl.float32)
        second = tl.load(source + H * D + 1).to(tl.float32)
        turned_first = (first * c - second * s).to(dtype).to(tl.float32)
        turned_second = (first * s + second * c).to(dtype).to(tl.float32)
        _store_pairs(
            keys, key_scales, entry, turned_first, turned_second, half, D, HAS_SCALES, LIMIT
        )
        first = tl.load(source + 2 * H * D).to(tl.float32)
        second = tl.load(source + 2 * H * D + 1).to(tl.float32)
        _store_pairs(values, value_scales, entry, first, second, half, D, HAS_SCALES, LIMIT)


@triton.jit
def _attend_range(
    queries, keys, values, key_scales, value_scales, slots, positions, mask,
    sums, maxima, totals, scale, window, capacity,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, RANGE: tl.constexpr,
    HAS_SCALES: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    part = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.program_id(2)
    if tl.load(mask + row):
        position = tl.load(positions + row)
        newest = (position % capacity).to(tl.int32)
        seen = tl.minimum(position + 1, window).to(tl.int32)
        column = tl.arange(0, D)
        largest = _UNSEEN
        total = 0.0
        acc = tl.zeros([D], dtype=tl.float32)
        if (part * RANGE <= newest) | (position >= capacity):
            query = tl.load(queries + (row * H + head) * D + column).to(tl.float32) * scale
            base = (tl.load(slots + row) * H + head) * capacity
            for start in tl.range(0, RANGE, BLOCK, num_stages=STAGES):
                entry = part * RANGE + start + tl.arange(0, BLOCK)
                age = newest - entry
                age = tl.where(age < 0, age + capacity, age)
                visible = (entry < capacity) & (age < seen)
                where = (base + entry)[:, None] * D + column[None, :]
                key = tl.load(keys + where, mask=visible[:, None], other=0.0).to(tl.float32)
                value = tl.load(values + where, mask=visible[:, None], other=0.0).to(tl.float32)
                score = tl.sum(key * query[None, :], axis=1)
                if HAS_SCALES:
                    score *= tl.load(key_scales + base + entry, mask=visible, other=0.0)
                score = tl.where(visible, score, float("-inf"))
                new_largest = tl.maximum(largest, tl.max(score, axis=0))
                shrink = tl.exp2(largest - new_largest)
                weight = tl.exp2(score - new_largest)
                total = total * shrink + tl.sum(weight, axis=0)
                if HAS_SCALES:
                    weight *= tl.load(value_scales + base + entry, mask=visible, other=0.0)
                acc = acc * shrink + tl.sum(weight[:, None] * value, axis=0)
                largest = new_largest
        index = (row * H + head) * N + part
        tl.store(sums + index * D + column, acc)
        tl.store(maxima + index, largest)
        tl.store(totals + index, total)


@triton.jit
def _join_ranges(
    sums, maxima, totals, mask, out,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr, N_POW2: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    head = tl.program_id(0)
    row = tl.program_id(1)
    column = tl.arange(0, D)
    target = out + (row * H + head) * D + column
    if tl.load(mask + row):
        part = tl.arange(0, N_POW2)
        index = (row * H + head) * N + part
        largest = tl.load(maxima + index, mask=part < N, other=_UNSEEN)
        total = tl.load(totals + index, mask=part < N, other=0.0)
        weight = tl.exp2(largest - tl.max(largest, axis=0))
        acc = tl.load(
            sums + index[:, None] * D + column[None, :], mask=(part < N)[:, None], other=0.0
        )
        joined = tl.sum(acc * weight[:, None], axis=0) / tl.sum(total * weight, axis=0)
        tl.store(target, joined.to(out.dtype.element_ty))
    else:
        tl.store(target, tl.zeros([D], dtype=out.dtype.element_ty))


def rotate_and_write(
    projected: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: Rows, rings: KvRings
) -> torch.Tensor:
    """See ``ring_attention.rotate_and_write``; one launch."""
    num_heads, capacity, head_dim = rings.keys.shape[1:]
    num_rows = projected.shape[0]
    queries = projected.new_empty(num_rows, num_heads, head_dim)
    has_scales = rings.key_scales is not None
    overlap = can_overlap(projected)
    _rotate_and_write[(num_rows, num_heads)](
        projected, cos, sin, rows.slots, rows.positions, rows.mask, queries,
        rings.keys, rings.values, rings.key_scales, rings.value_scales, capacity,
        H=num_heads, D=head_dim, HAS_SCALES=has_scales, LIMIT=FP8_MAX, OVERLAP=overlap, num_warps=1,
        **overlap_options(overlap),
    )  # fmt: skip
    return queries


def attend_rings(
    queries: torch.Tensor, rows: Rows, rings: KvRings, *, context: int
) -> torch.Tensor:
    """See ``ring_attention.attend_rings``; two launches."""
    num_rows, num_heads, head_dim = queries.shape
    tuning = rings.tuning
    overlap = can_overlap(queries)
    capacity = rings.keys.shape[2]
    num_ranges = -(-capacity // tuning.range_keys)
    shape = (num_rows, num_heads, num_ranges)
    sums = torch.empty((*shape, head_dim), dtype=torch.float32, device=queries.device)
    maxima = torch.empty(shape, dtype=torch.float32, device=queries.device)
    totals = torch.empty_like(maxima)
    out = torch.empty_like(queries)
    _attend_range[(num_ranges, num_heads, num_rows)](
        queries, rings.keys, rings.values, rings.key_scales, rings.value_scales,
        rows.slots, rows.positions, rows.mask, sums, maxima, totals,
        math.log2(math.e) / math.sqrt(head_dim), context - 1, capacity,
        H=num_heads, D=head_dim, N=num_ranges, BLOCK=tuning.block_keys, RANGE=tuning.range_keys,
        HAS_SCALES=rings.key_scales is not None, STAGES=tuning.num_stages,
        OVERLAP=overlap, num_warps=tuning.num_warps, **overlap_options(overlap),
    )  # fmt: skip
    _join_ranges[(num_heads, num_rows)](
        sums, maxima, totals, rows.mask, out,
        H=num_heads, D=head_dim, N=num_ranges, N_POW2=triton.next_power_of_2(num_ranges),
        OVERLAP=overlap, num_warps=1, **overlap_options(overlap),
    )  # fmt: skip
    return out
