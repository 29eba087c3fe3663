"""Encoded calls that wait on the device, each used a few times at most."""

import numpy as np
import torch

from examples.demo_model.device_copy import to_device
from examples.demo_model.lm.columns import NUM_ROWS
from examples.demo_model.lm.losses import Batch

MOST_USES = 3


class CallPool:
    """A fixed number of places for calls; a call that was used up gives its place back."""

    def __init__(self, places: int, length: int, device: torch.device, *, uses: int) -> None:
        """Make empty places.

        Args:
            places: How many calls wait at most.
            length: Columns of each.
            device: Where.
            uses: How often a call is used, 1 to `MOST_USES`.
        """
        assert 1 <= uses <= MOST_USES, f"{uses=}: more would let the model remember calls"
        self._uses = uses
        self._left = np.zeros(places, np.int64)
        self._columns = torch.zeros(places, NUM_ROWS, length, dtype=torch.int16, device=device)
        self._heard = torch.zeros(places, length, dtype=torch.int16, device=device)
        self._role = torch.zeros(places, length, dtype=torch.int8, device=device)
        self.num_calls = 0

    @property
    def num_free(self) -> int:
        """Places without a call."""
        return int((self._left == 0).sum())

    @property
    def num_waiting(self) -> int:
        """Calls that may still be used."""
        return int((self._left > 0).sum())

    def put(self, calls: Batch) -> None:
        """Take new calls in; there must be places for them."""
        free = np.flatnonzero(self._left == 0)[: len(calls.role)]
        assert len(free) == len(calls.role), "more calls than free places"
        at = to_device(free, self._role.device)
        self._columns[at], self._heard[at], self._role[at] = calls.columns, calls.heard, calls.role
        self._left[free] = self._uses
        self.num_calls += len(free)

    def take(self, count: int, draw: np.random.Generator) -> Batch:
        """Draw calls, no call twice, and count their use."""
        waiting = np.flatnonzero(self._left > 0)
        assert len(waiting) >= count, f"{len(waiting)} calls wait, {count} are asked for"
        chosen = draw.choice(waiting, count, replace=False)
        self._left[chosen] -= 1
        assert (self._left >= 0).all()
        at = to_device(chosen, self._role.device)
        return Batch(self._columns[at], self._heard[at], self._role[at])
