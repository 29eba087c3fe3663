"""The blocks that the temporal transformer and the depformer are made of.

``x += out_proj(attend(norm1(x)))``, then ``x += linear_out(silu(a) * b)`` with ``a, b`` the halves
of ``linear_in(norm2(x))``. What attention is, the caller says.

Legend: R rows, E width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.fused_linear import linear_add, norm_gated_linear, norm_linear
from livekit_personaplex.kernels.glue import add_rms_norm, rms_norm, silu_gate

Attend = Callable[[int, torch.Tensor], torch.Tensor]
"""(block, ``[R, 3E]`` query, key and value) to ``[R, E]``, what attention gathered."""


@dataclass(frozen=True, slots=True)
class GatedBlock:
    """Weights of one block; norms in float32, the rest in the model's dtype.

    Attributes:
        norm1: ``[E]``.
        in_proj: ``[3E, E]``, query, key and value stacked.
        out_proj: ``[E, E]``.
        norm2: ``[E]``.
        linear_in: ``[2 * hidden, E]``.
        linear_out: ``[E, hidden]``.
    """

    norm1: torch.Tensor
    in_proj: torch.Tensor
    out_proj: torch.Tensor
    norm2: torch.Tensor
    linear_in: torch.Tensor
    linear_out: torch.Tensor


def run_blocks(
    x: torch.Tensor,
    blocks: Sequence[GatedBlock],
    attend: Attend,
    *,
    eps: float,
    max_fused_rows: int,
) -> torch.Tensor:
    """Run rows through all blocks.

    Args:
        x: ``[R, E]`` residual stream.
        blocks: In order.
        attend: Attention of each.
        eps: Of the norms.
        max_fused_rows: A GPU runs up to this many rows with norms and residuals inside its
            products, and more with a library's products and launches between them. Either is
            fixed by R alone, which an engine never changes.

    Returns:
        ``[R, E]``, not normalised.
    """
    if x.is_cuda and x.shape[0] > max_fused_rows:
        return _run_apart(x, blocks, attend, eps)
    for index, block in enumerate(blocks):
        seen = attend(index, norm_linear(x, block.norm1, eps, block.in_proj))
        x = linear_add(seen, block.out_proj, x)
        hidden = norm_gated_linear(x, block.norm2, eps, block.linear_in)
        x = linear_add(hidden, block.linear_out, x)
    return x


def _run_apart(
    x: torch.Tensor, blocks: Sequence[GatedBlock], attend: Attend, eps: float
) -> torch.Tensor:
    normed = rms_norm(x, blocks[0].norm1, eps)
    following = [block.norm1 for block in blocks[1:]]
    for index, block in enumerate(blocks):
        seen = attend(index, F.linear(normed, block.in_proj))
        x, normed = add_rms_norm(x, F.linear(seen, block.out_proj), block.norm2, eps)
        branch = F.linear(silu_gate(F.linear(normed, block.linear_in)), block.linear_out)
        if index < len(following):
            x, normed = add_rms_norm(x, branch, following[index], eps)
        else:
            x = x + branch
    return x
