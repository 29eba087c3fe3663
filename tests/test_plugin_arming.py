import asyncio
from dataclasses import dataclass, field

import pytest
from livekit import rtc
from livekit.agents import AgentSession

from livekit_personaplex.plugin.arming import wait_until_heard
from tests.virtual_time import run_virtual

SIP = rtc.ParticipantKind.PARTICIPANT_KIND_SIP
STANDARD = rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD


@dataclass
class FakeParticipant:
    kind: int = STANDARD
    attributes: dict[str, str] = field(default_factory=dict)


class FakeRoomIO:
    """Somebody can hear the agent after a while; a telephone changes its status later."""

    def __init__(
        self, participant: FakeParticipant, ready_after_s: float, statuses: dict[float, str]
    ) -> None:
        self.room: rtc.EventEmitter[str] = rtc.EventEmitter()
        self.linked_participant: FakeParticipant | None = participant
        self._ready_after_s = ready_after_s
        loop = asyncio.get_running_loop()
        self._changes = [
            loop.call_later(after_s, self.change, status) for after_s, status in statuses.items()
        ]

    async def wait_for_ready(self) -> None:
        await asyncio.sleep(self._ready_after_s)

    def change(self, status: str) -> None:
        assert self.linked_participant is not None
        self.linked_participant.attributes["sip.callStatus"] = status
        self.room.emit("participant_attributes_changed", {}, self.linked_participant)

    def link(self, participant: FakeParticipant | None) -> None:
        self.room.emit("participant_connected", participant)  # in any order with RoomIO's own
        self.linked_participant = participant


class FakeSession(rtc.EventEmitter[str]):
    """A session in a room, which may be closed."""

    def __init__(self, room_io: FakeRoomIO, *, closed_after_s: float = 1e6) -> None:
        super().__init__()
        self.room_io = room_io
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(closed_after_s, lambda: self.emit("close", None))


async def wait(
    participant: FakeParticipant,
    *,
    ready_after_s: float = 2.0,
    statuses: dict[float, str] | None = None,
    closed_after_s: float = 1e6,
) -> tuple[bool, float]:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    room_io = FakeRoomIO(participant, ready_after_s, statuses or {})
    session: AgentSession[None] = FakeSession(room_io, closed_after_s=closed_after_s)  # type: ignore[assignment]
    is_heard = await wait_until_heard(session, timeout_s=60.0)
    assert not room_io.room._events.get("participant_attributes_changed")
    return is_heard, loop.time() - began_s


@pytest.mark.parametrize(
    ("ready_after_s", "closed_after_s", "expected", "after_s"),
    [(2.0, 1e6, True, 2.0), (100.0, 1e6, False, 60.0), (100.0, 3.0, False, 3.0)],
    ids=["joined", "nobody joined", "closed meanwhile"],
)
def test_an_agent_waits_until_it_is_heard_but_not_for_ever(
    ready_after_s: float, closed_after_s: float, expected: bool, after_s: float
) -> None:
    is_heard, waited_s = run_virtual(
        wait(FakeParticipant(), ready_after_s=ready_after_s, closed_after_s=closed_after_s)
    )
    assert is_heard is expected
    assert waited_s == pytest.approx(after_s)


@pytest.mark.parametrize(
    ("status", "statuses", "expected", "after_s"),
    [
        ("active", {}, True, 2.0),
        ("dialing", {4.0: "ringing", 8.0: "active"}, True, 8.0),
        ("dialing", {0.5: "ringing", 1.0: "active"}, True, 2.0),
        ("ringing", {5.0: "automation", 7.0: "active"}, True, 7.0),
        ("ringing", {}, False, 60.0),
        ("ringing", {5.0: "hangup"}, False, 60.0),
        (None, {}, True, 2.0),
    ],
    ids=["inbound", "outbound", "answered early", "dialing on", "no answer", "busy", "no status"],
)
def test_on_a_telephone_an_agent_waits_until_somebody_answers(
    status: str | None, statuses: dict[float, str], expected: bool, after_s: float
) -> None:
    attributes = {} if status is None else {"sip.callStatus": status}
    is_heard, waited_s = run_virtual(wait(FakeParticipant(SIP, attributes), statuses=statuses))
    assert is_heard is expected
    assert waited_s == pytest.approx(after_s)


def test_a_session_that_closes_while_it_rings_is_not_waited_for() -> None:
    ringing = FakeParticipant(SIP, {"sip.callStatus": "ringing"})
    is_heard, waited_s = run_virtual(wait(ringing, closed_after_s=9.0))
    assert not is_heard
    assert waited_s == pytest.approx(9.0)


def test_a_room_that_closes_before_anybody_joins_is_not_waited_for() -> None:
    async def scenario() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        room_io = FakeRoomIO(FakeParticipant(), 100.0, {})
        session: AgentSession[None] = FakeSession(room_io)  # type: ignore[assignment]
        closing = loop.call_later(4.0, room_io.room.emit, "disconnected", "ROOM_DELETED")
        is_heard = await wait_until_heard(session, timeout_s=60.0)
        closing.cancel()
        assert not room_io.room._events.get("disconnected")
        return is_heard, loop.time() - began_s

    is_heard, waited_s = run_virtual(scenario())
    assert not is_heard
    assert waited_s == pytest.approx(4.0)


def test_who_joins_after_a_telephone_that_nobody_answered_is_asked_instead() -> None:
    async def scenario() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        room_io = FakeRoomIO(FakeParticipant(SIP, {"sip.callStatus": "ringing"}), 1.0, {})
        session: AgentSession[None] = FakeSession(room_io)  # type: ignore[assignment]
        gone = loop.call_later(5.0, setattr, room_io, "linked_participant", None)
        come = loop.call_later(9.0, room_io.link, FakeParticipant())
        is_heard = await wait_until_heard(session, timeout_s=60.0)
        del gone, come
        return is_heard, loop.time() - began_s

    is_heard, waited_s = run_virtual(scenario())
    assert is_heard
    assert waited_s == pytest.approx(9.0)
