"""Attention of single positions over per-slot rings.

Rows stand for positions of any slots. All rows write their key and value first; then each row
attends to its own slot, up to its own position. The plain reference on CPU, Triton kernels on a
GPU (``gpu.ring_attention``).

Legend: R rows, S slots, H heads, C ring capacity, D head dim.
"""

import math

import torch

from livekit_personaplex.kernels.fp8 import FP8, quantize_vectors
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.rotation import apply_rope
from livekit_personaplex.kernels.rows import Rows


def rotate_and_write(
    projected: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: Rows, rings: KvRings
) -> torch.Tensor:
    """Split a fused projection, rotate query and key, and store key and value in the rings.

    Args:
        projected: ``[R, 3 * H * D]``: query, key, value.
        cos: ``[R, D / 2] float32``.
        sin: Like ``cos``.
        rows: What the rows stand for.
        rings: One layer's; written in place.

    Returns:
        ``[R, H, D]`` rotated queries.
    """
    if projected.is_cuda:
        from livekit_personaplex.kernels.gpu import ring_attention as ring_attention_gpu

        return ring_attention_gpu.rotate_and_write(projected, cos, sin, rows, rings)
    num_heads, capacity, head_dim = rings.keys.shape[1:]
    heads = projected.view(-1, 3, num_heads, head_dim)
    query, key, value = apply_rope(heads[:, :2], cos.unsqueeze(1), sin.unsqueeze(1)).unbind(1) + (
        heads[:, 2],
    )
    live = rows.mask.nonzero().squeeze(1)
    entries = rows.positions[live] % capacity
    slots = rows.slots[live]
    _store(rings.keys, rings.key_scales, slots, entries, key[live])
    _store(rings.values, rings.value_scales, slots, entries, value[live])
    return query


def attend_rings(
    queries: torch.Tensor, rows: Rows, rings: KvRings, *, context: int
) -> torch.Tensor:
    """Attend each row to the last ``context - 1`` positions of its slot, its own included.

    Quirk: the reference labels the entry that its next write will replace as a future position,
    so a full window is one shorter than ``context`` (test_the_full_window_is_one_short).

    Args:
        queries: ``[R, H, D]``, rotated.
        rows: What the rows stand for.
        rings: One layer's; C is at least ``context - 1`` plus the rows of one slot in a batch.
        context: Window of the model in steps.

    Returns:
        ``[R, H, D]`` in the dtype of ``queries``; softmax and sums are in float32.
    """
    if queries.is_cuda:
        from livekit_personaplex.kernels.gpu import ring_attention as ring_attention_gpu

        return ring_attention_gpu.attend_rings(queries, rows, rings, context=context)
    out = torch.zeros_like(queries)
    scale = 1.0 / math.sqrt(queries.shape[-1])
    table = zip(rows.slots.tolist(), rows.positions.tolist(), rows.mask.tolist(), strict=True)
    for row, (slot, position, live) in enumerate(table):
        if live:
            entries, hidden = _visible_entries(
                position, context=context, capacity=rings.keys.shape[2]
            )
            keys = _load(rings.keys, rings.key_scales, slot, entries)
            values = _load(rings.values, rings.value_scales, slot, entries)
            query = (queries[row].to(torch.float32) * scale).unsqueeze(1)
            scores = query @ keys.transpose(1, 2)
            scores[..., hidden] = float("-inf")
            out[row] = (torch.softmax(scores, dim=-1) @ values).squeeze(1).to(out.dtype)
    return out


def _visible_entries(position: int, *, context: int, capacity: int) -> tuple[slice, slice]:
    """Ring entries that the row at ``position`` sees: a range, less a range inside it.

    Views only, never copies: once a ring has wrapped, all of it is read, and the entries that have
    left the window (all of them the session's own) are hidden.
    """
    first = max(0, position - (context - 2))
    begin, end = first % capacity, position % capacity
    if begin <= end:
        return slice(begin, end + 1), slice(0, 0)
    return slice(0, capacity), slice(end + 1, begin)


def _store(
    ring: torch.Tensor,
    scales: torch.Tensor | None,
    slots: torch.Tensor,
    entries: torch.Tensor,
    vectors: torch.Tensor,
) -> None:
    where = (slots, slice(None), entries)
    if scales is None:
        ring[where] = vectors.to(ring.dtype)
    else:
        quantized, scale = quantize_vectors(vectors)
        ring.view(torch.uint8)[where] = quantized.view(torch.uint8)
        scales[where] = scale


def _load(
    ring: torch.Tensor, scales: torch.Tensor | None, slot: int, entries: slice
) -> torch.Tensor:
    if scales is None:
        return ring[slot][:, entries].to(torch.float32)
    raw = ring.view(torch.uint8)[slot][:, entries].contiguous().view(FP8)
    return raw.to(torch.float32) * scales[slot][:, entries].unsqueeze(-1)
