"""The depformer: the agent's codebooks of one frame, one inner step each.

Every inner step has weights of its own, there is no positional encoding, and each frame starts
afresh. Inner steps past the agent's codebooks predict the caller's audio, which is always given,
so they are neither run nor loaded.

Legend: B rows, N inner steps, E temporal width, D depformer width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.glue import add_rms_norm, rms_norm, silu_gate
from livekit_personaplex.kernels.inner_attention import attend_inner_steps
from livekit_personaplex.model.config import PersonaPlexDepformerConfig

DrawToken = Callable[[int, torch.Tensor], torch.Tensor]
"""(inner step, ``[B, card]`` logits) to the ``[B] int64`` token the next inner step sees."""


@dataclass(frozen=True, slots=True)
class DepformerLayer:
    """Weights of one layer for all N inner steps.

    Attributes:
        norm1: ``[D] float32``, shared by the inner steps, as ``norm2``.
        in_proj: ``[N, 3D, D]``.
        out_proj: ``[N, D, D]``.
        norm2: ``[D] float32``.
        linear_in: ``[N, 2 * hidden, D]``.
        linear_out: ``[N, D, hidden]``.
    """

    norm1: torch.Tensor
    in_proj: torch.Tensor
    out_proj: torch.Tensor
    norm2: torch.Tensor
    linear_in: torch.Tensor
    linear_out: torch.Tensor


@dataclass(frozen=True, slots=True)
class Depformer:
    """Weights and the forward pass.

    Attributes:
        config: Sizes.
        input_proj: ``[N * D, E]``, the inner steps' input projections stacked.
        text_embedding: ``[text rows, D]``.
        audio_embeddings: ``[N - 1, card + 1, D]``.
        layers: In order.
        heads: ``[N, card, D]``.
    """

    config: PersonaPlexDepformerConfig
    input_proj: torch.Tensor
    text_embedding: torch.Tensor
    audio_embeddings: torch.Tensor
    layers: list[DepformerLayer]
    heads: torch.Tensor

    def forward(
        self, hidden: torch.Tensor, text_token: torch.Tensor, draw_token: DrawToken
    ) -> torch.Tensor:
        """Draw one frame.

        Args:
            hidden: ``[B, E]`` from the temporal transformer.
            text_token: ``[B] int64`` of this step.
            draw_token: Chooses each inner step's token.

        Returns:
            ``[B, N] int64``.
        """
        num_rows, steps, config = hidden.shape[0], self.heads.shape[0], self.config
        inputs = F.linear(hidden, self.input_proj).view(num_rows, steps, -1)
        shape = (len(self.layers), 2, num_rows, config.num_attention_heads, steps, config.head_dim)
        cache = hidden.new_zeros(shape)
        tokens: list[torch.Tensor] = []
        embedding = F.embedding(text_token, self.text_embedding)
        for step in range(steps):
            x = self._inner_step(step, inputs[:, step] + embedding, cache)
            tokens.append(draw_token(step, F.linear(x, self.heads[step])))
            if step + 1 < steps:
                embedding = F.embedding(tokens[-1], self.audio_embeddings[step])
        return torch.stack(tokens, dim=1)

    def _inner_step(self, step: int, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        """Run one inner step through all layers; ``cache`` ``[L, 2, B, H, N, D]`` is written."""
        eps = self.config.rms_norm_eps
        normed = rms_norm(x, self.layers[0].norm1, eps)
        for index, layer in enumerate(self.layers):
            keys, values = cache[index].unbind(0)
            projected = F.linear(normed, layer.in_proj[step])
            seen = attend_inner_steps(projected, keys, values, step=step)
            x, normed = add_rms_norm(x, F.linear(seen, layer.out_proj[step]), layer.norm2, eps)
            gated = silu_gate(F.linear(normed, layer.linear_in[step]))
            branch = F.linear(gated, layer.linear_out[step])
            if index + 1 < len(self.layers):
                x, normed = add_rms_norm(x, branch, self.layers[index + 1].norm1, eps)
            else:
                x = x + branch
        return x
