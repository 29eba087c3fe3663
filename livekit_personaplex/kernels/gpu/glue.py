"""Norms with residuals and gates as single launches; what they compute is said in ``glue``."""

import torch
import triton
import triton.language as tl

_SILU_BLOCK = 1024


@triton.jit
def _add_rms_norm(
    x, delta, alpha, total, out, eps, E: tl.constexpr, BLOCK: tl.constexpr, HAS_DELTA: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < E
    wide = tl.load(x + row * E + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_DELTA:
        wide += tl.load(delta + row * E + column, mask=inside, other=0.0).to(tl.float32)
        rounded = wide.to(total.dtype.element_ty)
        tl.store(total + row * E + column, rounded, mask=inside)
        wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / E + eps)
    gain = tl.load(alpha + column, mask=inside, other=0.0)
    normed = wide * (gain * scale)
    tl.store(out + row * E + column, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _silu_gate(source, out, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < hidden
    start = source + row * 2 * hidden + column
    dtype = out.dtype.element_ty
    gate = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + hidden, mask=inside, other=0.0).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out + row * hidden + column, (silu * up).to(dtype), mask=inside)


def rms_norm(x: torch.Tensor, alpha: torch.Tensor, eps: float) -> torch.Tensor:
    """See ``glue.rms_norm``."""
    rows, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_rms_norm[(rows,)](
        x, x, alpha, out, out, eps, E=width, BLOCK=block, HAS_DELTA=False, num_warps=_warps(block)
    )
    return out


def add_rms_norm(
    x: torch.Tensor, delta: torch.Tensor, alpha: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See ``glue.add_rms_norm``."""
    rows, width = x.shape
    total, out = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_rms_norm[(rows,)](
        x,
        delta,
        alpha,
        total,
        out,
        eps,
        E=width,
        BLOCK=block,
        HAS_DELTA=True,
        num_warps=_warps(block),
    )
    return total, out


def silu_gate(gate_and_up: torch.Tensor) -> torch.Tensor:
    """See ``glue.silu_gate``."""
    rows, hidden = gate_and_up.shape[0], gate_and_up.shape[1] // 2
    out = gate_and_up.new_empty(rows, hidden)
    _silu_gate[(rows, triton.cdiv(hidden, _SILU_BLOCK))](
        gate_and_up, out, hidden, BLOCK=_SILU_BLOCK, num_warps=4
    )
    return out


def _warps(block: int) -> int:
    return min(8, max(1, block // 512))
