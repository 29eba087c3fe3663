"""Attention of Mimi's transformers on a GPU, one launch a layer.

What it computes is said in ``model.mimi_transformer``: the two new positions of a frame are
rotated and stored in every row's ring, and attend to it. One program does a row and head, with the
whole ring in registers, so nothing depends on other rows.

Legend: B rows, N ring entries, H heads, D head dim, C context.
"""

import math

import torch
import triton
import triton.language as tl

from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options

_NUM_WARPS = 8


@triton.jit
def _rotated(source, column, inside, cos, sin):
    """Rotate a vector's pairs: an element, its partner, and the sign of the partner's share."""
    own = tl.load(source + column, mask=inside, other=0.0)
    partner = tl.load(source + (column ^ 1), mask=inside, other=0.0)
    return own * cos + tl.where(column % 2 == 0, -partner, partner) * sin


@triton.jit
def _attend_pair(
    projected, cos, sin, positions, ring, out, scale, context,
    N: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    head = tl.program_id(1)
    column = tl.arange(0, BLOCK_D)
    inside = column < D
    entry = tl.arange(0, BLOCK_N)
    # The ring is of the frame before and ordinary launches stand between, so it needs no wait.
    position = tl.load(positions + row)
    first = (position % context).to(tl.int32)
    newest = ((position + 1) % context).to(tl.int32)
    age = newest - entry
    age = tl.where(age < 0, age + context, age)
    oldest = tl.minimum(position + 1, context - 2).to(tl.int32)
    visible = (entry < context) & (age <= oldest)
    past = (visible & (age >= 2))[:, None] & inside[None, :]
    base = ring + row.to(tl.int64) * (N * 2 * H * D) + head * D
    where = entry[:, None] * (2 * H * D) + column[None, :]
    keys = tl.load(base + where, mask=past, other=0.0)
    values = tl.load(base + where + H * D, mask=past, other=0.0)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    for i in tl.static_range(2):
        source = projected + (row * 2 + i) * (3 * H * D) + head * D
        half = (row * 2 + i) * (D // 2) + column // 2
        c = tl.load(cos + half, mask=inside, other=0.0)
        s = tl.load(sin + half, mask=inside, other=0.0)
        key = _rotated(source + H * D, column, inside, c, s)
        value = tl.load(source + 2 * H * D + column, mask=inside, other=0.0)
        target = base + (first if i == 0 else newest) * (2 * H * D) + column
        tl.store(target, key, mask=inside)
        tl.store(target + H * D, value, mask=inside)
        own = (age == 1 - i)[:, None] & (entry < context)[:, None]
        keys = tl.where(own, key[None, :], keys)
        values = tl.where(own, value[None, :], values)
    for i in tl.static_range(2):
        source = projected + (row * 2 + i) * (3 * H * D) + head * D
        half = (row * 2 + i) * (D // 2) + column // 2
        c = tl.load(cos + half, mask=inside, other=0.0)
        s = tl.load(sin + half, mask=inside, other=0.0)
        query = _rotated(source, column, inside, c, s) * scale
        score = tl.sum(keys * query[None, :], axis=1)
        score = tl.where(visible & (age >= 1 - i), score, float("-inf"))
        weight = tl.exp2(score - tl.max(score, axis=0))
        weight = weight / tl.sum(weight, axis=0)
        seen = tl.sum(values * weight[:, None], axis=0)
        tl.store(out + (row * 2 + i) * (H * D) + head * D + column, seen, mask=inside)


def attend_pair(
    projected: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    ring: torch.Tensor,
    *,
    context: int,
    num_warps: int = _NUM_WARPS,
) -> torch.Tensor:
    """Rotate and store the two new positions of every row, and attend with them.

    Args:
        projected: ``[2B, 3 * H * D] float32``: query, key, value; rows two by two.
        cos: ``[B, 2, D / 2] float32``.
        sin: Like ``cos``.
        positions: ``[B] int64`` position of each row's first vector.
        ring: ``[B, N, 2, H, D] float32`` keys and values of one layer, contiguous; written in
            place for every row, as a row that does not advance overwrites the same entries again.
        context: C, at least 3 and at most N.
        num_warps: Warps of one program.

    Returns:
        ``[2B, H * D] float32``.
    """
    num_rows, num_entries, _, num_heads, head_dim = ring.shape
    out = projected.new_empty(len(projected), num_heads * head_dim)
    overlap = can_overlap(projected)
    _attend_pair[(num_rows, num_heads)](
        projected, cos, sin, positions, ring, out,
        math.log2(math.e) / math.sqrt(head_dim), context,
        N=num_entries, H=num_heads, D=head_dim, BLOCK_N=triton.next_power_of_2(num_entries),
        BLOCK_D=triton.next_power_of_2(head_dim), OVERLAP=overlap, num_warps=num_warps,
        **overlap_options(overlap),
    )  # fmt: skip
    return out
