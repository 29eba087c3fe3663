import asyncio

import pytest
from livekit import rtc
from livekit.agents import AgentSession

from livekit_personaplex.plugin.arming import wait_until_heard
from tests.virtual_time import run_virtual


class FakeRoomIO:
    def __init__(self, ready_after_s: float) -> None:
        self._ready_after_s = ready_after_s

    async def wait_for_ready(self) -> None:
        await asyncio.sleep(self._ready_after_s)


class FakeSession(rtc.EventEmitter[str]):
    """A session in a room whose agent can be heard after a while, or which is closed."""

    def __init__(self, *, ready_after_s: float, closed_after_s: float = 1e6) -> None:
        super().__init__()
        self.room_io = FakeRoomIO(ready_after_s)
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(closed_after_s, lambda: self.emit("close", None))


async def wait(timeout_s: float, **when: float) -> tuple[bool, float]:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    session: AgentSession[None] = FakeSession(**when)  # type: ignore[assignment]
    is_heard = await wait_until_heard(session, timeout_s=timeout_s)
    return is_heard, loop.time() - began_s


@pytest.mark.parametrize(
    ("when", "expected", "after_s"),
    [
        ({"ready_after_s": 2.0}, True, 2.0),
        ({"ready_after_s": 100.0}, False, 60.0),
        ({"ready_after_s": 100.0, "closed_after_s": 3.0}, False, 3.0),
    ],
    ids=["joined", "nobody joined", "closed meanwhile"],
)
def test_an_agent_waits_until_it_is_heard_but_not_for_ever(
    when: dict[str, float], expected: bool, after_s: float
) -> None:
    is_heard, waited_s = run_virtual(wait(60.0, **when))
    assert is_heard is expected
    assert waited_s == pytest.approx(after_s)
