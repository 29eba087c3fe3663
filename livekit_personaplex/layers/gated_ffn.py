"""The gated feed-forward block of the temporal transformer and the depformer."""

import torch
import torch.nn.functional as F


def gated_ffn(x: torch.Tensor, linear_in: torch.Tensor, linear_out: torch.Tensor) -> torch.Tensor:
    """``linear_out(silu(a) * b)`` with ``a, b`` the halves of ``linear_in(x)``.

    Args:
        x: ``[B, E]``.
        linear_in: ``[2 * hidden, E]``.
        linear_out: ``[E, hidden]``.

    Returns:
        ``[B, E]``.
    """
    gate, up = F.linear(x, linear_in).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, linear_out)
