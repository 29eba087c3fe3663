"""Triton kernels of ``gpu.fused_linear``: products of few rows with what stands around them.

``sum_linear`` multiplies and adds in registers, for one to four rows a program: nothing waits for
shared memory or a tensor core. ``dot_linear`` uses tensor cores (plain float32 units for float32)
for 16 rows a program and more. Both do norm, product and what follows in one pass over the weights.

NORM is "none", "rms" or "layer"; FINISH is "store", "add" (a residual), "gate" (``silu(a) * b``
with the weights of ``b`` N rows behind those of ``a``) or "gelu". With OVERLAP a kernel starts
early (``gpu.overlap``); ``sum_linear`` then reads its first weights before it waits.

Nothing depends on the content of other rows, and sums have a fixed order.

What a variant has no use for is dead code, which the compiler drops.

Legend: R rows, K inputs, N outputs.
"""

# mypy: disable-error-code="assignment"
# Triton's tuples grow as loops unroll; Python's types do not.

import triton
import triton.language as tl


@triton.jit
def _finish(value, gated, residual, where, mask, dtype: tl.constexpr, FINISH: tl.constexpr):
    rounded = value.to(dtype).to(tl.float32)
    if FINISH == "add":
        rounded = tl.load(residual + where, mask=mask, other=0.0).to(tl.float32) + rounded
    if FINISH == "gate":
        silu = (rounded / (1.0 + tl.exp(-rounded))).to(dtype).to(tl.float32)
        rounded = silu * gated.to(dtype).to(tl.float32)
    if FINISH == "gelu":
        rounded = 0.5 * rounded * (1.0 + tl.erf(rounded * 0.7071067811865476))
    return rounded.to(dtype)


@triton.jit
def _layer_statistics(x, row, inside, eps, K: tl.constexpr, BLOCK_ROW: tl.constexpr):
    """Mean and reciprocal deviation of rows ``[R, 1]`` of ``x``, each ``[R, 1]``."""
    k = tl.arange(0, BLOCK_ROW)[None, :]
    wide = tl.load(x + row * K + k, mask=inside & (k < K), other=0.0).to(tl.float32)
    mean = tl.sum(wide, axis=1)[:, None] / K
    centred = tl.where(k < K, wide - mean, 0.0)
    return mean, tl.rsqrt(tl.sum(centred * centred, axis=1)[:, None] / K + eps)


@triton.jit(do_not_specialize=["num_rows"])
def sum_linear(
    x, gain, bias, weight, residual, out, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr, FINISH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_ROW: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows (neighbours in the grid share weights) and BLOCK_N outputs."""
    first_row = tl.program_id(0) * ROWS
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    source = weight + n[:, None] * K + k[None, :]
    inside_n = (n < N)[:, None]
    next_tile = tl.load(source, mask=inside_n & (k < K)[None, :], other=0.0)
    next_up = next_tile
    if FINISH == "gate":
        next_up = tl.load(source + N * K, mask=inside_n & (k < K)[None, :], other=0.0)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    sums, ups, squares, means, scales = (), (), (), (), ()
    for i in tl.static_range(ROWS):
        sums = sums + (tl.zeros([BLOCK_N, BLOCK_K], tl.float32),)
        ups = ups + (tl.zeros([BLOCK_N, BLOCK_K], tl.float32),)
        squares = squares + (tl.zeros([BLOCK_K], tl.float32),)
        if NORM == "layer":
            row = tl.full([1, 1], 0, tl.int32) + (first_row + i)
            mean, scale = _layer_statistics(x, row, row < num_rows, eps, K, BLOCK_ROW)
            means, scales = means + (tl.sum(mean),), scales + (tl.sum(scale),)
    for start in range(0, K, BLOCK_K):
        tile = next_tile.to(tl.float32)
        up_tile = next_up.to(tl.float32)
        inside = inside_n & (start + BLOCK_K + k < K)[None, :]
        next_tile = tl.load(source + start + BLOCK_K, mask=inside, other=0.0)
        next_up = next_tile
        if FINISH == "gate":
            next_up = tl.load(source + N * K + start + BLOCK_K, mask=inside, other=0.0)
        new_sums, new_ups, new_squares = (), (), ()
        for i in tl.static_range(ROWS):
            held = tl.where(first_row + i < num_rows, K, 0)
            where = (first_row + i) * K + start + k
            wide = tl.load(x + where, mask=start + k < held, other=0.0).to(tl.float32)
            new_squares = new_squares + (squares[i] + wide * wide,)
            if NORM == "layer":
                wide = (wide - means[i]) * scales[i]
            if NORM != "none":
                wide *= tl.load(gain + start + k, mask=start + k < K, other=0.0)
            if NORM == "layer":
                wide += tl.load(bias + start + k, mask=start + k < K, other=0.0)
            new_sums = new_sums + (sums[i] + tile * wide[None, :],)
            new_ups = new_ups + (ups[i] + up_tile * wide[None, :],)
        sums, ups, squares = new_sums, new_ups, new_squares
    for i in tl.static_range(ROWS):
        value = tl.sum(sums[i], axis=1)
        gated = tl.sum(ups[i], axis=1)
        if NORM == "rms":
            scale = tl.rsqrt(tl.sum(squares[i], axis=0) / K + eps)
            value *= scale
            gated *= scale
        where = (first_row + i) * N + n
        mask = n < tl.where(first_row + i < num_rows, N, 0)
        done = _finish(value, gated, residual, where, mask, out.dtype.element_ty, FINISH)
        tl.store(out + where, done, mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def dot_linear(
    x, gain, bias, weight, residual, out, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr, FINISH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_ROW: tl.constexpr,
    OVERLAP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows (a multiple of 16) and BLOCK_N outputs."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    inside_row = row < num_rows
    inside_n = (n < N)[:, None]
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    mean, scale = 0.0, 1.0
    if NORM == "layer":
        mean, scale = _layer_statistics(x, row, inside_row, eps, K, BLOCK_ROW)
    sums = tl.zeros([ROWS, BLOCK_N], tl.float32)
    ups = tl.zeros([ROWS, BLOCK_N], tl.float32)
    squares = tl.zeros([ROWS, BLOCK_K], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        inside_k = start + k < K
        rows = tl.load(x + row * K + start + k, mask=inside_row & inside_k[None, :], other=0.0)
        source = weight + n[:, None] * K + (start + k)[None, :]
        tile = tl.load(source, mask=inside_n & inside_k[None, :], other=0.0)
        if NORM != "none":
            wide = rows.to(tl.float32)
            own_gain = tl.load(gain + start + k, mask=inside_k, other=0.0)
            if NORM == "rms":
                squares += wide * wide
                wide = wide * own_gain[None, :]
            else:
                own_bias = tl.load(bias + start + k, mask=inside_k, other=0.0)
                wide = (wide - mean) * scale * own_gain[None, :] + own_bias[None, :]
            rows = wide.to(rows.dtype)
        sums = tl.dot(rows, tile.T, sums, input_precision="ieee")
        if FINISH == "gate":
            up_tile = tl.load(source + N * K, mask=inside_n & inside_k[None, :], other=0.0)
            ups = tl.dot(rows, up_tile.T, ups, input_precision="ieee")
    if NORM == "rms":
        scale = tl.rsqrt(tl.sum(squares, axis=1)[:, None] / K + eps)
        sums *= scale
        ups *= scale
    where = row * N + n[None, :]
    mask = inside_row & (n < N)[None, :]
    done = _finish(sums, ups, residual, where, mask, out.dtype.element_ty, FINISH)
    tl.store(out + where, done, mask=mask)
