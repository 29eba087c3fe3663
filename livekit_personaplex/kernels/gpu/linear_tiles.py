"""How products of few rows are cut on a GPU, pinned by shape.

A cut fixes the order of a row's sum, so tiles are chosen by the shape alone and never measured
while calls run.
"""

from dataclasses import dataclass

import torch

MAX_SUMMED_ROWS = 4
"""Up to this many rows of a program are summed in registers; 16 and more use tensor cores."""


@dataclass(frozen=True, slots=True)
class LinearTile:
    """One cut.

    Attributes:
        rows: Rows of one program: 1, 2 or 4 (register sums) or 16, 32 or 64 (tensor cores).
        block_n: Outputs of one program.
        block_k: Inputs read at once.
        num_warps: Warps of one program.
        num_stages: Depth of the load pipeline, with tensor cores only.
    """

    rows: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int = 1


_PINNED = {
    (1, 12288, 4096): LinearTile(1, 8, 1024, 4),
    (1, 4096, 4096): LinearTile(1, 8, 1024, 4),
    (1, 11264, 4096): LinearTile(1, 2, 1024, 4),
    (1, 4096, 11264): LinearTile(1, 4, 2048, 8),
    (1, 3072, 1024): LinearTile(1, 8, 512, 2),
    (1, 1024, 1024): LinearTile(1, 4, 1024, 8),
    (1, 2816, 1024): LinearTile(1, 4, 512, 2),
    (1, 1024, 2816): LinearTile(1, 4, 2048, 8),
    (1, 2048, 1024): LinearTile(1, 4, 1024, 4),
    (4, 3072, 1024): LinearTile(4, 8, 1024, 4),
    (4, 1024, 1024): LinearTile(4, 2, 1024, 4),
    (4, 2816, 1024): LinearTile(4, 4, 1024, 4),
    (4, 1024, 2816): LinearTile(4, 4, 1024, 4),
    (4, 2048, 1024): LinearTile(4, 2, 1024, 4),
}
"""Fastest cuts of the real model's bfloat16 products on an H200, by (rows of a program, N, K)."""


def linear_tile(num_rows: int, n: int, k: int, dtype: torch.dtype, *, gated: bool) -> LinearTile:
    """Choose the cut of ``[num_rows, k]`` by ``[n, k]``, with twice the weights when gated."""
    if num_rows <= MAX_SUMMED_ROWS or dtype == torch.float32:
        rows = 1 if num_rows == 1 else 2 if num_rows == 2 else 4
        if dtype == torch.bfloat16 and (rows, n, k) in _PINNED:
            return _PINNED[rows, n, k]
        warps = 4
        block_k = min(power_of_2(k), warps * 32 * (16 // dtype.itemsize))
        block_n = 2 if gated or rows == MAX_SUMMED_ROWS else 4
        return LinearTile(rows, block_n, block_k, warps)
    rows = 16 if num_rows <= 16 else 32 if num_rows <= 32 else 64
    return LinearTile(rows, 16 if n <= 1024 else 32, 128, 4, 4)


def power_of_2(size: int) -> int:
    """The smallest power of two that holds ``size``, at least 16 as tensor cores want it."""
    return max(16, 1 << (size - 1).bit_length())
