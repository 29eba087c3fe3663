"""RMS normalisation, in float32 whatever the model's dtype."""

import torch


def rms_norm(x: torch.Tensor, alpha: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row of ``x`` by ``alpha / rms(x)``.

    Source: NVIDIA/personaplex modules/transformer.py, RMSNorm with alpha and float32 inside.

    Args:
        x: ``[..., E]`` in the model's dtype.
        alpha: ``[E] float32``.
        eps: Added to the mean square.

    Returns:
        ``[..., E]`` in the dtype of ``x``.
    """
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * (alpha * scale)).to(x.dtype)
