"""Rotary position embedding over interleaved pairs (2j, 2j+1), rotated in float32."""

import torch


def rope_tables(
    positions: torch.Tensor, *, head_dim: int, max_period: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines for absolute positions.

    Args:
        positions: ``[...] int64`` absolute steps.
        head_dim: Size of one head; must be even.
        max_period: The base, 10,000 in every part of the model.

    Returns:
        Two ``[..., head_dim / 2] float32`` tensors.
    """
    pairs = torch.arange(head_dim // 2, device=positions.device, dtype=torch.float32)
    frequencies = torch.exp(pairs * (-torch.log(torch.tensor(max_period)).item() * 2 / head_dim))
    angles = positions.to(torch.float32).unsqueeze(-1) * frequencies
    return torch.cos(angles), torch.sin(angles)


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate ``x``.

    Args:
        x: ``[..., H, D]``.
        cos: ``[..., D / 2] float32``, without the head axis.
        sin: Like ``cos``.

    Returns:
        ``[..., H, D]`` in the dtype of ``x``.
    """
    pairs = x.to(torch.float32).view(*x.shape[:-1], -1, 2)
    real, imag = pairs[..., 0], pairs[..., 1]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    turned = torch.stack((real * cos - imag * sin, real * sin + imag * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)
