"""The depformer: the agent's codebooks of one frame, one inner step each.

Every inner step has weights of its own, there is no positional encoding, and each frame starts
afresh. Inner steps past the agent's codebooks predict the caller's audio, which is always given,
so they are neither run nor loaded.

Legend: B rows, N inner steps, L layers, E temporal width, D depformer width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.fused_linear import linear
from livekit_personaplex.kernels.inner_attention import attend_inner_steps
from livekit_personaplex.kernels.token_embedding import add_embedding
from livekit_personaplex.layers.gated_blocks import GatedBlock, run_blocks
from livekit_personaplex.model.config import PersonaPlexDepformerConfig

DrawToken = Callable[[int, torch.Tensor], torch.Tensor]
"""(inner step, ``[B, card]`` logits) to the ``[B] int64`` token the next inner step sees."""

_MAX_FUSED_ROWS = 4
"""Measured on an H200: 0.79 ms fused and 1.83 apart at one row, 1.40 and 1.85 at four, 2.7 and 1.8
at eight."""


@dataclass(frozen=True, slots=True)
class Depformer:
    """Weights and the forward pass.

    Attributes:
        config: Sizes.
        input_proj: ``[N * D, E]``, the inner steps' input projections stacked.
        text_embedding: ``[text rows, D]``.
        audio_embeddings: ``[N - 1, card + 1, D]``.
        steps: The blocks of each inner step.
        heads: ``[N, card, D]``.
    """

    config: PersonaPlexDepformerConfig
    input_proj: torch.Tensor
    text_embedding: torch.Tensor
    audio_embeddings: torch.Tensor
    steps: list[list[GatedBlock]]
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
        num_rows, config = hidden.shape[0], self.config
        inputs = F.linear(hidden, self.input_proj).view(num_rows, len(self.steps), -1)
        heads = (config.num_attention_heads, len(self.steps), config.head_dim)
        cache = hidden.new_zeros((config.num_hidden_layers, 2, num_rows, *heads))
        tokens = [text_token]
        for step, blocks in enumerate(self.steps):
            table = self.audio_embeddings[step - 1] if step else self.text_embedding
            x = add_embedding(inputs[:, step], tokens[-1], table)
            x = self._inner_step(step, blocks, x, cache)
            head = self.heads[step]
            logits = linear(x, head) if num_rows <= _MAX_FUSED_ROWS else F.linear(x, head)
            tokens.append(draw_token(step, logits))
        return torch.stack(tokens[1:], dim=1)

    def _inner_step(
        self, step: int, blocks: list[GatedBlock], x: torch.Tensor, cache: torch.Tensor
    ) -> torch.Tensor:
        """Run one inner step through all layers; ``cache`` ``[L, 2, B, H, N, D]`` is written."""

        def attend(index: int, projected: torch.Tensor) -> torch.Tensor:
            keys, values = cache[index].unbind(0)
            return attend_inner_steps(projected, keys, values, step=step)

        return run_blocks(
            x, blocks, attend, eps=self.config.rms_norm_eps, max_fused_rows=_MAX_FUSED_ROWS
        )
