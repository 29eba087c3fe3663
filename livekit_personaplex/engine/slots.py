"""Which session has which slot, and the phase the slot is in. Pure; the asyncio loop owns it."""

from dataclasses import dataclass
from enum import Enum

from livekit_personaplex.errors import CapacityError


class SlotPhase(Enum):
    """Life of a slot: free, opening, live, closing, and free again."""

    FREE = "free"
    OPENING = "opening"
    LIVE = "live"
    CLOSING = "closing"


_NEXT_PHASES = {
    SlotPhase.FREE: (SlotPhase.OPENING,),
    SlotPhase.OPENING: (SlotPhase.LIVE, SlotPhase.CLOSING),
    SlotPhase.LIVE: (SlotPhase.CLOSING,),
    SlotPhase.CLOSING: (SlotPhase.FREE,),
}


@dataclass(slots=True)
class _Slot:
    phase: SlotPhase = SlotPhase.FREE
    owner: str = ""


class SlotTable:
    """All slots of an engine. Illegal transitions are broken invariants: AssertionError."""

    def __init__(self, num_slots: int) -> None:
        """Make a table of free slots."""
        self._slots = [_Slot() for _ in range(num_slots)]

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_used(self) -> int:
        """Slots that are not free."""
        return sum(slot.phase is not SlotPhase.FREE for slot in self._slots)

    def phase(self, slot: int) -> SlotPhase:
        """Give the phase of a slot."""
        return self._slots[slot].phase

    def owner(self, slot: int) -> str:
        """Give the session that has a slot; empty for a free one."""
        return self._slots[slot].owner

    def reserve(self, session_id: str) -> int:
        """Give a free slot to a session that opens.

        Raises:
            CapacityError: Every slot is taken.
        """
        for index, slot in enumerate(self._slots):
            if slot.phase is SlotPhase.FREE:
                self._move(index, SlotPhase.OPENING)
                slot.owner = session_id
                return index
        raise CapacityError(
            f"all {len(self._slots)} slots of this engine are taken; try another one, or later"
        )

    def mark_live(self, slot: int) -> None:
        """The system prompt of an opening slot is done."""
        self._move(slot, SlotPhase.LIVE)

    def mark_closing(self, slot: int) -> None:
        """The session has gone; work on its slot may still be in flight."""
        self._move(slot, SlotPhase.CLOSING)

    def free(self, slot: int) -> None:
        """Nothing works on a closing slot any more: anyone may have it."""
        self._move(slot, SlotPhase.FREE)
        self._slots[slot].owner = ""

    def _move(self, slot: int, phase: SlotPhase) -> None:
        now = self._slots[slot].phase
        assert phase in _NEXT_PHASES[now], (
            f"slot {slot} cannot go from {now.value} to {phase.value}"
        )
        self._slots[slot].phase = phase
