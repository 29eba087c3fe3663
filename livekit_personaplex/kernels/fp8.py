"""8-bit floats for keys and values: one scale a vector, its largest element fits exactly."""

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0


def quantize_vectors(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale each vector so that its largest element is the format's, and round.

    Args:
        x: ``[..., D]``.

    Returns:
        ``[..., D]`` 8-bit floats and ``[...] float32`` scales; ``q * scale`` gives ``x`` back.
    """
    wide = x.to(torch.float32)
    scale = wide.abs().amax(dim=-1).clamp_min(1e-12) * (1.0 / FP8_MAX)
    return (wide / scale.unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX).to(FP8), scale
