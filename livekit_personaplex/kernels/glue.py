"""What stands between the matrix products: norms with residuals and gates.

Each function is the plain reference on CPU and one Triton launch on a GPU (``gpu.glue``).

Legend: R rows, E width.
"""

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, alpha: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row of ``x`` by ``alpha / rms(x)``, in float32 inside.

    Source: NVIDIA/personaplex modules/transformer.py, RMSNorm with alpha and float32 inside.

    Args:
        x: ``[R, E]`` in the model's dtype.
        alpha: ``[E] float32``.
        eps: Added to the mean square.

    Returns:
        ``[R, E]`` in the dtype of ``x``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import glue as glue_gpu

        return glue_gpu.rms_norm(x, alpha, eps)
    return _rms_norm_reference(x, alpha, eps)


def add_rms_norm(
    x: torch.Tensor, delta: torch.Tensor, alpha: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a branch to the residual stream and normalise the sum for the next.

    Args:
        x: ``[R, E]`` residual stream.
        delta: ``[R, E]`` what the branch gave.
        alpha: ``[E] float32`` of the next norm.
        eps: As in ``rms_norm``.

    Returns:
        The new residual stream and its normalised form, both ``[R, E]``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import glue as glue_gpu

        return glue_gpu.add_rms_norm(x, delta, alpha, eps)
    total = x + delta
    return total, _rms_norm_reference(total, alpha, eps)


def silu_gate(gate_and_up: torch.Tensor) -> torch.Tensor:
    """``silu(a) * b`` with ``a, b`` the halves of each row.

    Args:
        gate_and_up: ``[R, 2 * hidden]``.

    Returns:
        ``[R, hidden]``.
    """
    if gate_and_up.is_cuda:
        from livekit_personaplex.kernels.gpu import glue as glue_gpu

        return glue_gpu.silu_gate(gate_and_up)
    gate, up = gate_and_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _rms_norm_reference(x: torch.Tensor, alpha: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * (alpha * scale)).to(x.dtype)
