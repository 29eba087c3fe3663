"""Attention of single positions over per-slot key and value rings: the plain reference.

B rows stand for B positions of any slots. A ring of capacity C holds position p at entry p mod C.
All rows write their key and value first; then each row attends to its own slot, up to its own
position. CPU always runs this file; on a GPU the Triton kernels are tested against it.

Legend: R rows, S slots, H heads, C ring capacity, D head dim.
"""

import math

import torch


def write_rings(
    keys: torch.Tensor,
    values: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
) -> None:
    """Store the rows' keys and values in their slots' rings; masked rows store nothing.

    Args:
        keys: ``[S, H, C, D]``, written in place.
        values: Like ``keys``.
        new_keys: ``[R, H, D]``.
        new_values: ``[R, H, D]``.
        slots: ``[R] int64``.
        positions: ``[R] int64`` absolute positions.
        mask: ``[R] bool``; False rows leave no trace.
    """
    capacity = keys.shape[2]
    live = mask.nonzero().squeeze(1)
    where = (slots[live], slice(None), positions[live] % capacity)
    keys[where] = new_keys[live].to(keys.dtype)
    values[where] = new_values[live].to(values.dtype)


def attend_rings(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    *,
    context: int,
) -> torch.Tensor:
    """Attend each row to the last ``context - 1`` positions of its slot, its own included.

    Quirk: the reference labels the entry that its next write will replace as a future position,
    so a full window is one shorter than ``context`` (test_the_full_window_is_one_short).

    Args:
        queries: ``[R, H, D]``, rotated.
        keys: ``[S, H, C, D]`` with C at least ``context - 1``.
        values: Like ``keys``.
        slots: ``[R] int64``.
        positions: ``[R] int64``.
        mask: ``[R] bool``; masked rows give zeros.
        context: Window of the model in steps.

    Returns:
        ``[R, H, D]`` in the dtype of ``queries``; softmax and sums are in float32.
    """
    out = torch.zeros_like(queries)
    scale = 1.0 / math.sqrt(queries.shape[-1])
    rows = zip(slots.tolist(), positions.tolist(), mask.tolist(), strict=True)
    for row, (slot, position, live) in enumerate(rows):
        if live:
            entries = _visible_entries(position, context=context, capacity=keys.shape[2])
            ring_keys = keys[slot][:, entries].to(torch.float32)
            ring_values = values[slot][:, entries].to(torch.float32)
            query = (queries[row].to(torch.float32) * scale).unsqueeze(1)
            weights = torch.softmax(query @ ring_keys.transpose(1, 2), dim=-1)
            out[row] = (weights @ ring_values).squeeze(1).to(out.dtype)
    return out


def _visible_entries(position: int, *, context: int, capacity: int) -> slice | torch.Tensor:
    """Ring entries that the row at ``position`` sees, as few copies as possible."""
    first = max(0, position - (context - 2))
    begin, end = first % capacity, position % capacity
    if begin <= end:
        return slice(begin, end + 1)
    return torch.cat((torch.arange(0, end + 1), torch.arange(begin, capacity)))
