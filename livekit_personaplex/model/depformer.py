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

from livekit_personaplex.layers.gated_ffn import gated_ffn
from livekit_personaplex.layers.norm import rms_norm
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
        steps = self.heads.shape[0]
        inputs = F.linear(hidden, self.input_proj).view(hidden.shape[0], steps, -1)
        past: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in self.layers]
        tokens: list[torch.Tensor] = []
        embedding = F.embedding(text_token, self.text_embedding)
        for step in range(steps):
            x = inputs[:, step] + embedding
            for layer, cache in zip(self.layers, past, strict=True):
                x = self._layer(layer, step, x, cache)
            tokens.append(draw_token(step, F.linear(x, self.heads[step])))
            if step + 1 < steps:
                embedding = F.embedding(tokens[-1], self.audio_embeddings[step])
        return torch.stack(tokens, dim=1)

    def _layer(
        self,
        layer: DepformerLayer,
        step: int,
        x: torch.Tensor,
        cache: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        config = self.config
        shape = (x.shape[0], 3, config.num_attention_heads, config.head_dim)
        normed = rms_norm(x, layer.norm1, config.rms_norm_eps)
        heads = F.linear(normed, layer.in_proj[step]).view(shape)
        cache.append((heads[:, 1], heads[:, 2]))
        keys = torch.stack([key for key, _ in cache], dim=2)
        values = torch.stack([value for _, value in cache], dim=2)
        seen = F.scaled_dot_product_attention(heads[:, 0].unsqueeze(2), keys, values)
        x = x + F.linear(seen.flatten(1), layer.out_proj[step])
        normed = rms_norm(x, layer.norm2, config.rms_norm_eps)
        return x + gated_ffn(normed, layer.linear_in[step], layer.linear_out[step])
