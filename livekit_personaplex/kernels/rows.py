"""What the rows of a batch stand for."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rows:
    """Which conversation and position each row of a batch stands for.

    Attributes:
        slots: ``[R] int64``.
        positions: ``[R] int64`` absolute positions.
        mask: ``[R] bool``; False rows leave no trace and give zeros.
    """

    slots: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
