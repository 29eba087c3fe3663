"""Prompt positions waiting for rows: first come, first served, one conversation a batch.

A batch always begins at row 0 with positions of one conversation only, so which row a position
stands in never depends on who else is being opened, and neither do its bits.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.model.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Consecutive positions of one slot.

    Attributes:
        slot: Whose.
        first: Position of the first row.
        columns: ``[n, 17] int64`` with n at most the rows of a tick.
        embeddings: ``[m, E] float32`` summed inputs of the first m rows.
        finishes: The slot's prompt ends with this batch.
    """

    slot: int
    first: int
    columns: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    finishes: bool


@dataclass(frozen=True, slots=True)
class PromptQueue:
    """Openings in the order of arrival.

    Attributes:
        num_rows: Most positions of one batch.
    """

    num_rows: int
    _plans: OrderedDict[int, PromptPlan] = field(default_factory=OrderedDict)
    _done: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._plans)

    def add(self, slot: int, plan: PromptPlan) -> None:
        """Queue every position of a plan."""
        assert slot not in self._plans, f"slot {slot} is being opened already"
        self._plans[slot] = plan
        self._done[slot] = 0

    def drop(self, slot: int) -> None:
        """Forget what is left of a slot's opening, if anything is."""
        self._plans.pop(slot, None)
        self._done.pop(slot, None)

    def take(self) -> PromptBatch | None:
        """Hand out the next batch and move on; None when nothing waits."""
        if not self._plans:
            return None
        slot, plan = next(iter(self._plans.items()))
        first = self._done[slot]
        last = min(first + self.num_rows, plan.num_positions)
        self._done[slot] = last
        finishes = last == plan.num_positions
        if finishes:
            self.drop(slot)
        return PromptBatch(
            slot, first, plan.columns[first:last], plan.embeddings[first:last], finishes
        )
