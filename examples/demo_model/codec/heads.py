"""What must be readable from the codes: phonemes and pitch of each 20 ms.

Legend: B clips, T frames, E width, L = 4 T labels.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOTS = 4
"""Labels of a frame."""
_LATE = 3
"""A frame tells of 60 ms before its start and the 20 ms after: it has not heard all of the rest."""
_HIDDEN = 256
_PAUSE_WEIGHT = 0.3


class Reading(NamedTuple):
    """How well labels were read: the loss and the part of the sounding ones that was right."""

    loss: Tensor
    accuracy: Tensor


class SlotHead(nn.Module):
    """Reads labels off quantised vectors, from this frame and the one before."""

    def __init__(self, width: int, classes: int) -> None:
        """Make two layers."""
        super().__init__()
        self.hidden = nn.Linear(2 * width, _HIDDEN)
        self.scores = nn.Linear(_HIDDEN, SLOTS * classes)

    def forward(self, vectors: Tensor, labels: Tensor) -> Reading:
        """Compare what ``[B, T, E]`` say with ``labels [B, L]`` (0 pause, -1 unknown)."""
        earlier = F.pad(vectors[:, :-1], (0, 0, 1, 0))
        hidden = F.gelu(self.hidden(torch.cat((earlier, vectors), dim=2)))
        scores = self.scores(hidden).float().unflatten(2, (SLOTS, -1)).flatten(0, 2)
        due = F.pad(labels, (_LATE, 0), value=-1)[:, : labels.shape[1]].flatten()
        weight = (due >= 0).float() - (due == 0) * (1 - _PAUSE_WEIGHT)
        each = F.cross_entropy(scores, due.clamp(min=0), reduction="none")
        sounding = due > 0
        right = ((scores.argmax(1) == due) & sounding).sum() / sounding.sum().clamp(min=1)
        return Reading((each * weight).sum() / weight.sum().clamp(min=1.0), right)
