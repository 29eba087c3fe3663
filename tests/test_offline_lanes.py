"""Slots that are kept busy until a list of work is done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from livekit_personaplex.offline.lanes import keep_busy


@dataclass
class Chore:
    name: str
    num_steps: int
    num_done: int = 0

    @property
    def is_done(self) -> bool:
        return self.num_done >= self.num_steps


class FakeLanes:
    """Notes who was where in every step."""

    def __init__(self, num_slots: int, fails_at: int | None = None) -> None:
        self.num_slots = num_slots
        self.fails_at = fails_at
        self.owners: dict[int, str] = {}
        self.steps: list[dict[int, str]] = []

    def begin(self, slot: int, work: Chore) -> None:
        assert slot not in self.owners, "a slot that is taken"
        self.owners[slot] = work.name

    def advance(self, busy: Mapping[int, Chore]) -> None:
        assert {slot: work.name for slot, work in busy.items()} == self.owners
        if len(self.steps) == self.fails_at:
            raise RuntimeError("the device is gone")
        self.steps.append(dict(self.owners))
        for work in busy.values():
            work.num_done += 1

    def end(self, slot: int) -> None:
        del self.owners[slot]


def test_a_free_slot_takes_the_next_work_at_once_and_all_is_done() -> None:
    lanes = FakeLanes(3)
    chores = [Chore(str(length), length) for length in (5, 1, 3, 2, 4, 1)]
    done = [chore.name for chore in keep_busy(lanes, iter(chores))]
    assert sorted(done) == sorted(chore.name for chore in chores)
    assert done[0] == "1", "in the order of their ends"
    assert all(chore.num_done == chore.num_steps for chore in chores)
    assert [len(step) for step in lanes.steps] == [3, 3, 3, 3, 2, 1, 1]
    assert lanes.owners == {}


def test_fewer_pieces_than_slots_and_none_at_all() -> None:
    lanes = FakeLanes(4)
    assert [chore.name for chore in keep_busy(lanes, iter([Chore("a", 2)]))] == ["a"]
    assert list(keep_busy(lanes, iter([]))) == []
    assert len(lanes.steps) == 2


def test_work_is_asked_for_only_when_a_slot_is_free() -> None:
    asked = []

    def source() -> Iterator[Chore]:
        for index in range(6):
            asked.append(index)
            yield Chore(str(index), 3)

    working = keep_busy(FakeLanes(2), source())
    next(working)
    assert asked == [0, 1]


def test_every_slot_is_given_back_when_a_step_fails_or_the_reader_goes() -> None:
    lanes = FakeLanes(2, fails_at=1)
    with pytest.raises(RuntimeError):
        list(keep_busy(lanes, iter([Chore("a", 3), Chore("b", 3)])))
    assert lanes.owners == {}
    lanes = FakeLanes(2)
    working = keep_busy(lanes, iter([Chore("a", 1), Chore("b", 9)]))
    next(working)
    working.close()
    assert lanes.owners == {}
