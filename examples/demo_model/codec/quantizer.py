"""The residual quantizer for training: codebooks that follow what they are given.

The first codebook and the other ones quantise two projections of the same vector. Codebooks are
moving averages of the vectors they were nearest to; an entry that nothing is near to any more is
put where vectors are far from all entries. Everything here is float32 and waits for no GPU.

Legend: B clips, T frames, N = B * T vectors, E width, Q codebook width, K codebooks, V entries.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.demo_model.sizes import CARD, MimiSizes

_DEAD = 0.05
"""An entry is renewed when it is used less than this part of the mean."""
_MIN_USAGE = 1e-5
_JITTER = 1e-3
"""Of a new entry, in standard deviations: two at the same place would never part."""


class Quantized(NamedTuple):
    """What became of a batch of vectors.

    Attributes:
        first: ``[B, T, E]`` from the first codebook alone.
        total: ``[B, T, E]`` from all codebooks.
        codes: ``[B, K, T] int64``.
        commitment: Mean squared distance to the entries, differentiable in the input.
        residuals: ``[K, N, Q]`` what each codebook was given.
    """

    first: Tensor
    total: Tensor
    codes: Tensor
    commitment: Tensor
    residuals: Tensor


class Quantizer(nn.Module):
    """Vectors to codes and back."""

    sums: Tensor
    usage: Tensor

    def __init__(self, sizes: MimiSizes) -> None:
        """Draw projections; codebooks are empty until :meth:`start` or a load."""
        super().__init__()
        width, dim = sizes.width, sizes.vq_dim
        self.input_first = nn.Linear(width, dim, bias=False)
        self.input_rest = nn.Linear(width, dim, bias=False)
        self.output_first = nn.Linear(dim, width, bias=False)
        self.output_rest = nn.Linear(dim, width, bias=False)
        self.register_buffer("sums", torch.zeros(sizes.num_codebooks, CARD, dim))
        self.register_buffer("usage", torch.ones(sizes.num_codebooks, CARD))

    @property
    def codebooks(self) -> Tensor:
        """``[K, V, Q]``."""
        return self.sums / self.usage.clamp(min=_MIN_USAGE).unsqueeze(2)

    def bypass(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Pass ``[B, T, E]`` through the projections alone; gives ``first`` and ``total``."""
        first = self.output_first(self.input_first(z))
        return first, first + self.output_rest(self.input_rest(z))

    def forward(self, z: Tensor, kept: Tensor | None = None) -> Quantized:
        """Quantise ``[B, T, E] float32``; gradients pass straight through.

        Args:
            z: Vectors.
            kept: ``[B] int64``: of the codebooks after the first, how many take part; else all.
        """
        batch, length, _ = z.shape
        flat = z.flatten(0, 1)
        books = self.codebooks
        offsets = books.square().sum(dim=2).mul(-0.5)
        first_in, rest_in = self.input_first(flat), self.input_rest(flat)
        residual, losses, residuals, codes = first_in, [], [], []
        first = rest = torch.zeros_like(first_in)
        for index, book in enumerate(books.unbind(0)):
            if index == 1:
                residual = rest_in
            with torch.no_grad():
                code = torch.addmm(offsets[index], residual, book.t()).argmax(dim=1)
                entry = F.embedding(code, book)
            losses.append(F.mse_loss(residual, entry))
            residuals.append(residual.detach())
            codes.append(code)
            if index == 0:
                first = entry
                continue
            residual = residual - entry
            if kept is not None:
                entry = (
                    entry
                    * (kept >= index).repeat_interleave(length, output_size=len(flat))[:, None]
                )
            rest = rest + entry
        first = self.output_first(first_in + (first - first_in).detach()).view_as(z)
        rest = self.output_rest(rest_in + (rest - rest_in).detach()).view_as(z)
        return Quantized(
            first=first,
            total=first + rest,
            codes=torch.stack(codes).view(-1, batch, length).transpose(0, 1),
            commitment=torch.stack(losses).mean(),
            residuals=torch.stack(residuals),
        )

    @torch.no_grad()
    def encode(self, z: Tensor) -> Tensor:
        """``[B, T, E]`` to codes ``[B, K, T] int64``."""
        seen: Quantized = self(z)
        return seen.codes

    def decode(self, codes: Tensor) -> Tensor:
        """``[B, K, T]`` to vectors ``[B, T, E]``."""
        books = self.codebooks
        entries = [
            F.embedding(code, book) for code, book in zip(codes.unbind(1), books, strict=True)
        ]
        first: Tensor = self.output_first(entries[0])
        rest: Tensor = self.output_rest(torch.stack(entries[1:]).sum(0))
        return first + rest

    @torch.no_grad()
    def follow(self, seen: Quantized, decay: float, renew: Tensor) -> None:
        """Move the codebooks towards what they were given.

        Args:
            seen: Of this step.
            decay: Of the moving averages.
            renew: ``[] bool``: whether unused entries are placed anew in this step.
        """
        count, card, dim = self.sums.shape
        offsets = torch.arange(count, device=self.sums.device).unsqueeze(1) * card
        rows = (seen.codes.transpose(0, 1).flatten(1) + offsets).flatten()
        given = seen.residuals.flatten(0, 1)
        distance = (given - F.embedding(rows, self.codebooks.flatten(0, 1))).square().sum(dim=1)
        hits = torch.zeros(count * card, device=given.device).index_add_(
            0, rows, torch.ones_like(distance)
        )
        sums = torch.zeros(count * card, dim, device=given.device).index_add_(0, rows, given)
        self.usage.mul_(decay).add_(hits.view(count, card), alpha=1 - decay)
        self.sums.mul_(decay).add_(sums.view(count, card, dim), alpha=1 - decay)
        mean = self.usage.mean(dim=1, keepdim=True)
        dead = (self.usage < _DEAD * mean) & renew
        fresh = _draw(seen.residuals, distance.view(count, -1), card)
        self.sums.copy_(torch.where(dead.unsqueeze(2), fresh * mean.unsqueeze(2), self.sums))
        self.usage.copy_(torch.where(dead, mean, self.usage))

    @torch.no_grad()
    def start(self, z: Tensor, rounds: int = 8) -> None:
        """Place all entries by a few rounds of k-means on vectors ``[N, E]``, N well above V."""
        residual = self.input_first(z)
        for index in range(len(self.sums)):
            if index == 1:
                residual = self.input_rest(z)
            book = _some(residual)
            book = book + _JITTER * residual.std() * torch.randn_like(book)
            for _ in range(rounds):
                code = torch.addmm(book.square().sum(1).mul(-0.5), residual, book.t()).argmax(1)
                hits = torch.zeros_like(book[:, 0]).index_add_(0, code, torch.ones_like(z[:, 0]))
                sums = torch.zeros_like(book).index_add_(0, code, residual)
                means = sums / hits.clamp(min=1)[:, None]
                book = torch.where(hits[:, None] > 0, means, _some(residual))
            usage = (hits + 0.1) * (CARD / len(z))
            self.usage[index].copy_(usage)
            self.sums[index].copy_(book * usage[:, None])
            code = torch.addmm(book.square().sum(1).mul(-0.5), residual, book.t()).argmax(1)
            residual = residual - F.embedding(code, book)

    @torch.no_grad()
    def centre(self) -> None:
        """Make codebooks plain means, rounded as they will be stored."""
        self.sums.copy_(self.codebooks.to(torch.bfloat16).float())
        self.usage.fill_(1.0)


def _some(vectors: Tensor) -> Tensor:
    """Draw as many of ``[N, Q]`` as a codebook has entries."""
    return vectors[torch.randint(len(vectors), (CARD,), device=vectors.device)]


def _draw(residuals: Tensor, distance: Tensor, count: int) -> Tensor:
    """Draw vectors of each codebook, the worst fitted most often: ``[K, count, Q]``."""
    ladder = (distance + 1e-12).cumsum(dim=1)
    ladder = ladder / ladder[:, -1:]
    level = torch.rand(len(ladder), count, device=ladder.device)
    index = torch.searchsorted(ladder, level).clamp(max=ladder.shape[1] - 1)
    drawn = residuals.gather(1, index.unsqueeze(2).expand(-1, -1, residuals.shape[2]))
    return drawn + _JITTER * residuals.std(dim=(1, 2), keepdim=True) * torch.randn_like(drawn)
