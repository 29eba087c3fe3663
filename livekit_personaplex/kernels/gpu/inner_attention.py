"""Attention over the inner steps of a frame on a GPU; see ``inner_attention``."""

import math

import torch
import triton
import triton.language as tl

from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options


@triton.jit
def _attend_inner_steps(
    projected, keys, values, out, scale,
    STEP: tl.constexpr, H: tl.constexpr, N: tl.constexpr, D: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    column = tl.arange(0, D)
    source = projected + row * (3 * H * D) + head * D + column
    query = tl.load(source).to(tl.float32) * scale
    key = tl.load(source + H * D)
    value = tl.load(source + 2 * H * D)
    base = (row * H + head) * N * D
    tl.store(keys + base + STEP * D + column, key)
    tl.store(values + base + STEP * D + column, value)
    step = tl.arange(0, N)
    where = base + step[:, None] * D + column[None, :]
    past = (step < STEP)[:, None]
    own = (step == STEP)[:, None]
    all_keys = tl.load(keys + where, mask=past, other=0.0).to(tl.float32)
    all_keys = tl.where(own, key.to(tl.float32)[None, :], all_keys)
    score = tl.sum(all_keys * query[None, :], axis=1)
    score = tl.where(step <= STEP, score, float("-inf"))
    weight = tl.exp2(score - tl.max(score, axis=0))
    weight = weight / tl.sum(weight, axis=0)
    all_values = tl.load(values + where, mask=past, other=0.0).to(tl.float32)
    all_values = tl.where(own, value.to(tl.float32)[None, :], all_values)
    seen = tl.sum(all_values * weight[:, None], axis=0)
    tl.store(out + (row * H + head) * D + column, seen.to(out.dtype.element_ty))


def attend_inner_steps(
    projected: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, step: int
) -> torch.Tensor:
    """See ``inner_attention.attend_inner_steps``; N and D must be powers of two."""
    num_rows, num_heads, num_steps, head_dim = keys.shape
    out = projected.new_empty(num_rows, num_heads * head_dim)
    overlap = can_overlap(projected)
    _attend_inner_steps[(num_rows, num_heads)](
        projected, keys, values, out, math.log2(math.e) / math.sqrt(head_dim),
        STEP=step, H=num_heads, N=num_steps, D=head_dim, OVERLAP=overlap, num_warps=1,
        **overlap_options(overlap),
    )  # fmt: skip
    return out
