"""Adding embeddings on a GPU; what it computes is said in ``token_embedding``."""

import torch
import triton
import triton.language as tl

from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options


@triton.jit
def _add_embedding(
    x, tokens, table, out, row_stride,
    D: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < D
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    own = tl.load(x + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    token = tl.load(tokens + row)
    added = tl.load(table + token * D + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * D + column, (own + added).to(out.dtype.element_ty), mask=inside)


def add_embedding(x: torch.Tensor, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """See ``token_embedding.add_embedding``."""
    num_rows, width = x.shape
    out = x.new_empty(num_rows, width)
    overlap = can_overlap(x)
    _add_embedding[(num_rows,)](
        x, tokens, table, out, x.stride(0),
        D=width, BLOCK=triton.next_power_of_2(width), OVERLAP=overlap, num_warps=4,
        **overlap_options(overlap),
    )  # fmt: skip
    return out
