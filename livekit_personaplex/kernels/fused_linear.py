"""Matrix products of few rows with the norm before them or the residual after them in one launch.

With few rows the time of a layer is the time of reading its weights and of starting kernels. These
start one kernel where the plain form starts two or three. Each is the plain reference on CPU and
one Triton launch on a GPU (``gpu.fused_linear``), for any R but made for at most 16.

Tensors are contiguous; weights are ``[N, K]`` as ``F.linear`` has them.

Legend: R rows, K inputs, N outputs, H gated width.
"""

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.glue import rms_norm, silu_gate


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight^T``: ``[R, K]`` to ``[R, N]``."""
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.linear(x, weight)
    return F.linear(x, weight)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """``residual + x @ weight^T``, the product rounded to the model's dtype before the sum.

    Args:
        x: ``[R, K]``.
        weight: ``[N, K]``.
        residual: ``[R, N]``, left as it is.

    Returns:
        ``[R, N]``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.linear_add(x, weight, residual)
    return residual + F.linear(x, weight)


def norm_linear(
    x: torch.Tensor, alpha: torch.Tensor, eps: float, weight: torch.Tensor
) -> torch.Tensor:
    """``rms_norm(x) @ weight^T``.

    Args:
        x: ``[R, K]``.
        alpha: ``[K] float32`` of the norm.
        eps: Added to the mean square.
        weight: ``[N, K]``.

    Returns:
        ``[R, N]``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.norm_linear(x, alpha, eps, weight)
    return F.linear(rms_norm(x, alpha, eps), weight)


def norm_gated_linear(
    x: torch.Tensor, alpha: torch.Tensor, eps: float, weight: torch.Tensor
) -> torch.Tensor:
    """``silu(gate) * up`` of ``rms_norm(x) @ weight^T``.

    Args:
        x: ``[R, K]``.
        alpha: ``[K] float32`` of the norm.
        eps: Added to the mean square.
        weight: ``[2H, K]``, the rows of the gate first.

    Returns:
        ``[R, H]``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.norm_gated_linear(x, alpha, eps, weight)
    return silu_gate(F.linear(rms_norm(x, alpha, eps), weight))


def layer_norm_linear(
    x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float, weight: torch.Tensor
) -> torch.Tensor:
    """``layer_norm(x) @ weight^T``.

    Args:
        x: ``[R, K]``.
        gain: ``[K] float32`` of the norm.
        bias: ``[K] float32`` of the norm.
        eps: Added to the variance.
        weight: ``[N, K]``.

    Returns:
        ``[R, N]``.
    """
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.layer_norm_linear(x, gain, bias, eps, weight)
    return F.linear(F.layer_norm(x, gain.shape, gain, bias, eps), weight)


def layer_norm_linear_gelu(
    x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float, weight: torch.Tensor
) -> torch.Tensor:
    """``gelu(layer_norm(x) @ weight^T)``, the exact GELU; arguments of ``layer_norm_linear``."""
    if x.is_cuda:
        from livekit_personaplex.kernels.gpu import fused_linear as fused_linear_gpu

        return fused_linear_gpu.layer_norm_linear_gelu(x, gain, bias, eps, weight)
    return F.gelu(F.linear(F.layer_norm(x, gain.shape, gain, bias, eps), weight))
