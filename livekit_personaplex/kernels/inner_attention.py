"""Attention of the depformer: over the inner steps of one frame so far.

The plain reference on CPU, one Triton launch on a GPU (``gpu.inner_attention``).

Legend: B rows, H heads, N inner steps, D head dim.
"""

import torch
import torch.nn.functional as F


def attend_inner_steps(
    projected: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, step: int
) -> torch.Tensor:
    """Store this inner step's key and value, and attend to all inner steps so far.

    Args:
        projected: ``[B, 3 * H * D]``: query, key, value.
        keys: ``[B, H, N, D]``, written at ``step``.
        values: Like ``keys``.
        step: Which inner step, from 0.

    Returns:
        ``[B, H * D]``.
    """
    if projected.is_cuda:
        from livekit_personaplex.kernels.gpu import inner_attention as inner_attention_gpu

        return inner_attention_gpu.attend_inner_steps(projected, keys, values, step=step)
    num_rows, num_heads, _, head_dim = keys.shape
    query, key, value = projected.view(num_rows, 3, num_heads, head_dim).unbind(1)
    keys[:, :, step] = key
    values[:, :, step] = value
    seen = F.scaled_dot_product_attention(
        query.unsqueeze(2), keys[:, :, : step + 1], values[:, :, : step + 1]
    )
    return seen.flatten(1)
