"""Products of few rows on a GPU, one launch each; what they compute is said in ``fused_linear``."""

import torch
import triton

from livekit_personaplex.kernels.gpu.linear_kernels import dot_linear, sum_linear
from livekit_personaplex.kernels.gpu.linear_tiles import (
    MAX_SUMMED_ROWS,
    LinearTile,
    linear_tile,
    power_of_2,
)
from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options


def linear(
    x: torch.Tensor, weight: torch.Tensor, *, tile: LinearTile | None = None
) -> torch.Tensor:
    """See ``fused_linear.linear``; ``tile`` replaces the pinned cut, here and below."""
    return _launch(x, weight, tile=tile)


def linear_add(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor,
    *,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """See ``fused_linear.linear_add``."""
    return _launch(x, weight, residual=residual, finish="add", tile=tile)


def norm_linear(
    x: torch.Tensor,
    alpha: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    *,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """See ``fused_linear.norm_linear``."""
    return _launch(x, weight, gain=alpha, eps=eps, norm="rms", tile=tile)


def norm_gated_linear(
    x: torch.Tensor,
    alpha: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    *,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """See ``fused_linear.norm_gated_linear``."""
    return _launch(x, weight, gain=alpha, eps=eps, norm="rms", finish="gate", tile=tile)


def layer_norm_linear(
    x: torch.Tensor,
    gain: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    *,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """See ``fused_linear.layer_norm_linear``."""
    return _launch(x, weight, gain=gain, bias=bias, eps=eps, norm="layer", tile=tile)


def layer_norm_linear_gelu(
    x: torch.Tensor,
    gain: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    *,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """See ``fused_linear.layer_norm_linear_gelu``."""
    return _launch(x, weight, gain=gain, bias=bias, eps=eps, norm="layer", finish="gelu", tile=tile)


def _launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    gain: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    eps: float = 0.0,
    norm: str = "none",
    finish: str = "store",
    tile: LinearTile | None = None,
) -> torch.Tensor:
    num_rows, k = x.shape
    gated = finish == "gate"
    n = weight.shape[0] // 2 if gated else weight.shape[0]
    out = x.new_empty(num_rows, n)
    tile = tile or linear_tile(num_rows, n, k, x.dtype, gated=gated)
    overlap = can_overlap(x)
    summed = tile.rows <= MAX_SUMMED_ROWS
    grid = (triton.cdiv(num_rows, tile.rows), triton.cdiv(n, tile.block_n))
    kernel = sum_linear if summed else dot_linear
    kernel[grid](
        x, gain, bias, weight, residual, out, num_rows, eps,
        N=n, K=k, NORM=norm, FINISH=finish,
        ROWS=tile.rows, BLOCK_N=tile.block_n, BLOCK_K=min(tile.block_k, power_of_2(k)),
        BLOCK_ROW=power_of_2(k), OVERLAP=overlap, num_warps=tile.num_warps,
        **({} if summed else {"STAGES": tile.num_stages}),
        **overlap_options(overlap),
    )  # fmt: skip
    return out
