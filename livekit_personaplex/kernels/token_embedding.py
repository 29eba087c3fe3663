"""Adding the embedding of a token just drawn.

The plain reference on CPU, one Triton launch on a GPU (``gpu.token_embedding``).
"""

import torch
import torch.nn.functional as F


def add_embedding(x: torch.Tensor, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``x + table[tokens]``.

    Args:
        x: ``[R, D]``; rows may be apart, the elements of a row lie together.
        tokens: ``[R] int64``.
        table: ``[V, D]``, contiguous.

    Returns:
        ``[R, D]``, contiguous.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import token_embedding as token_embedding_gpu

        return token_embedding_gpu.add_embedding(x, tokens, table)
    return x + F.embedding(tokens, table)
