"""Keeps all slots of a device busy until a list of work is done. Knows nothing of what the work is.

A slot that becomes free takes the next piece of work at once, so that short ones do not wait for
long ones. What a piece of work computes does not depend on who is in the other slots.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Protocol, TypeVar


class Work(Protocol):
    """A piece of work that takes a number of steps, at least one."""

    @property
    def is_done(self) -> bool:
        """Whether it needs no more steps."""
        ...


W = TypeVar("W", bound=Work)
W_contra = TypeVar("W_contra", bound=Work, contravariant=True)


class Lanes(Protocol[W_contra]):
    """The slots of a device."""

    @property
    def num_slots(self) -> int:
        """Pieces of work at a time."""
        ...

    def begin(self, slot: int, work: W_contra) -> None:
        """Give a free slot to a piece of work."""
        ...

    def advance(self, busy: Mapping[int, W_contra]) -> None:
        """Advance every piece of work, by its slot, by one step. Blocks."""
        ...

    def end(self, slot: int) -> None:
        """Take a slot back."""
        ...


def keep_busy(lanes: Lanes[W], source: Iterator[W]) -> Generator[W, None, None]:
    """Work off ``source``; gives every piece of work once it is done, in the order of their ends.

    Every slot is given back whatever happens.

    Args:
        lanes: With every slot free.
        source: Asked for the next piece whenever a slot is free.
    """
    free = list(reversed(range(lanes.num_slots)))
    busy: dict[int, W] = {}
    try:
        while True:
            while free and (work := next(source, None)) is not None:
                slot = free.pop()
                busy[slot] = work
                lanes.begin(slot, work)
            if not busy:
                return
            lanes.advance(busy)
            for slot in [slot for slot, work in busy.items() if work.is_done]:
                work = busy.pop(slot)
                lanes.end(slot)
                free.append(slot)
                yield work
    finally:
        for slot in busy:
            lanes.end(slot)
