"""Random weights of any size, made in place: for speed and memory where no checkpoint is at hand.

Every tensor is drawn from a generator seeded by its name, and scaled so that activations keep
their size through the layers: logits come out finite and varied, speech is noise.
"""

import math
import zlib
from collections.abc import Mapping

import torch

Shape = tuple[int, ...]

_RESIDUAL_ENDS = ("self_attn.out_proj.weight", "linear_out.weight", "linear2.weight")


class RandomSource:
    """A tensor source that has whatever it is asked for."""

    def __init__(self, shapes: Mapping[str, Shape], *, num_layers: int, seed: int) -> None:
        """Describe what there is.

        Args:
            shapes: All tensors by name.
            num_layers: Layers that add to one residual stream.
            seed: Other seeds give other weights.
        """
        self._shapes = dict(shapes)
        self._residual_scale = 1.0 / math.sqrt(2 * num_layers)
        self._seed = seed

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors there are."""
        return frozenset(self._shapes)

    def check(
        self, expected: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None
    ) -> None:
        """Hold that what is asked for was described."""
        assert expected.keys() <= self._shapes.keys()

    def read(self, name: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Draw one tensor on ``device``."""
        shape = self._shapes[name]
        constant = _constant(name)
        if constant is not None:
            return torch.full(shape, constant, device=device, dtype=dtype)
        generator = torch.Generator(device).manual_seed(self._seed + zlib.crc32(name.encode()))
        drawn = torch.randn(shape, generator=generator, device=device)
        return drawn.mul_(self._scale(name, shape)).to(dtype)

    def _scale(self, name: str, shape: Shape) -> float:
        if name.endswith("embedding_sum"):
            return 1.0
        if name.startswith(("emb.", "text_emb.")):
            return 1.0 / math.sqrt(17)
        if name.startswith(("linears.", "text_linear.")):
            return 3.0 / math.sqrt(shape[-1])
        if name.startswith(("depformer_emb", "depformer_text_emb")):
            return 1.0
        if name.startswith("upsample."):
            return 0.7
        if "convtr" in name:
            return 1.0 / math.sqrt(2 * shape[0])
        residual = self._residual_scale if name.endswith(_RESIDUAL_ENDS) else 1.0
        return residual / math.sqrt(math.prod(shape[1:]))


def _constant(name: str) -> float | None:
    """The value of tensors that are not drawn."""
    if name.endswith((".alpha", "norm1.weight", "norm2.weight", "cluster_usage", "_initialized")):
        return 1.0
    if name.endswith(".bias"):
        return 0.0
    return 0.5 if name.endswith(".scale") else None
