"""Mimi's residual vector quantizer: a vector to 8 codes, and 8 codes to a vector.

The first codebook and the other seven quantise two projections of the same vector; a decoded vector
is the sum of both sides projected back. Projections and codebooks are constant, so the decoder
keeps the projected codebooks and only adds up eight looked-up rows.

Source: NVIDIA/personaplex quantization/vq.py, core_vq.py.
Legend: B streams, K codebooks, V codes of a codebook, Q codebook width, E width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True, slots=True)
class QuantizerEncoder:
    """Nearest code of each codebook in turn.

    Attributes:
        input_proj: ``[2Q, E]``: for the first codebook, then for the rest.
        codebooks: ``[K, V, Q] float32``.
        offsets: ``[K, V] float32``: minus half the squared norm of each code.
    """

    input_proj: torch.Tensor
    codebooks: torch.Tensor
    offsets: torch.Tensor

    @staticmethod
    def from_codebooks(input_proj: torch.Tensor, codebooks: torch.Tensor) -> "QuantizerEncoder":
        """Precompute the norms."""
        return QuantizerEncoder(input_proj, codebooks, codebooks.square().sum(dim=2).mul_(-0.5))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Quantise ``[B, E] float32`` to ``[B, K] int64``.

        The nearest code c of a residual r is the one with the largest r.c - c.c / 2.
        """
        first, residual = F.linear(x, self.input_proj).chunk(2, dim=1)
        codes = [self._nearest(first, 0)]
        for index in range(1, len(self.codebooks)):
            codes.append(self._nearest(residual, index))
            if index + 1 < len(self.codebooks):
                residual = residual - F.embedding(codes[-1], self.codebooks[index])
        return torch.stack(codes, dim=1)

    def _nearest(self, residual: torch.Tensor, index: int) -> torch.Tensor:
        scores = torch.addmm(self.offsets[index], residual, self.codebooks[index].t())
        return scores.argmax(dim=1)


@dataclass(frozen=True, slots=True)
class QuantizerDecoder:
    """Sums of projected codes.

    Attributes:
        tables: ``[K * V, E] float32``: every codebook through its side's output projection.
        starts: ``[K] int64`` row where each codebook begins.
    """

    tables: torch.Tensor
    starts: torch.Tensor

    @staticmethod
    def from_codebooks(
        first_proj: torch.Tensor, rest_proj: torch.Tensor, codebooks: torch.Tensor
    ) -> "QuantizerDecoder":
        """Project the codebooks; projections are ``[E, Q]``."""
        num_codebooks, card, _ = codebooks.shape
        tables = torch.cat(
            (
                F.linear(codebooks[0], first_proj),
                F.linear(codebooks[1:].flatten(0, 1), rest_proj),
            )
        )
        starts = torch.arange(num_codebooks, device=codebooks.device) * card
        return QuantizerDecoder(tables, starts)

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        """Look up ``[B, K] int64`` codes; returns ``[B, E] float32``.

        Codes are limited to the codebook: rows that do not advance may hold anything, and an index
        out of range would end a GPU's context.
        """
        card = self.tables.shape[0] // self.starts.shape[0]
        return F.embedding(codes.clamp(0, card - 1) + self.starts, self.tables).sum(dim=1)
