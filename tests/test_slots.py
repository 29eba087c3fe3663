"""Slots: legal transitions only, one owner at a time."""

import random

import pytest

from livekit_personaplex.engine.slots import SlotPhase, SlotTable
from livekit_personaplex.errors import CapacityError


def test_a_slot_goes_round_from_free_to_free() -> None:
    slots = SlotTable(1)
    slot = slots.reserve("ann")
    assert (slots.phase(slot), slots.owner(slot), slots.num_used) == (SlotPhase.OPENING, "ann", 1)
    slots.mark_live(slot)
    assert slots.phase(slot) is SlotPhase.LIVE
    slots.mark_closing(slot)
    assert (slots.phase(slot), slots.owner(slot), slots.num_used) == (SlotPhase.CLOSING, "ann", 1)
    slots.free(slot)
    assert (slots.phase(slot), slots.owner(slot), slots.num_used) == (SlotPhase.FREE, "", 0)


def test_a_call_that_goes_while_it_opens_gives_its_slot_back() -> None:
    slots = SlotTable(1)
    slots.mark_closing(slots.reserve("ann"))
    slots.free(0)
    assert slots.reserve("bob") == 0


def test_a_full_table_refuses_also_while_a_slot_is_closing() -> None:
    slots = SlotTable(2)
    slots.reserve("ann")
    slots.mark_closing(slots.reserve("bob"))
    with pytest.raises(CapacityError, match="all 2 slots"):
        slots.reserve("carl")
    slots.free(1)
    assert slots.reserve("carl") == 1


@pytest.mark.parametrize("change", [SlotTable.mark_live, SlotTable.mark_closing, SlotTable.free])
def test_a_free_slot_can_only_be_reserved(change) -> None:
    with pytest.raises(AssertionError, match="slot 0 cannot go from free"):
        change(SlotTable(1), 0)


def test_a_slot_is_not_freed_under_its_owner() -> None:
    slots = SlotTable(1)
    slots.reserve("ann")
    with pytest.raises(AssertionError, match="from opening to free"):
        slots.free(0)
    slots.mark_live(0)
    with pytest.raises(AssertionError, match="from live to free"):
        slots.free(0)


def test_no_two_of_a_thousand_random_joins_and_leaves_share_a_slot() -> None:
    dice = random.Random(5)
    slots = SlotTable(4)
    owners: dict[int, str] = {}
    for index in range(1000):
        if dice.random() < 0.5:
            try:
                slot = slots.reserve(f"call {index}")
            except CapacityError:
                assert len(owners) == 4
                continue
            assert slot not in owners
            owners[slot] = f"call {index}"
        elif owners:
            slot = dice.choice(sorted(owners))
            assert slots.owner(slot) == owners.pop(slot)
            if dice.random() < 0.5:
                slots.mark_live(slot)
            slots.mark_closing(slot)
            slots.free(slot)
        assert slots.num_used == len(owners)
