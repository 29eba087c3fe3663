"""An event loop whose clock jumps: waiting costs no time, and no test depends on the pace.

Everything must happen on the loop itself. Sockets within one process do; threads do not.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: where the loop would wait for a timer, the clock is set to that timer."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout is not None and timeout <= 0:
            return ready
        if timeout is None:
            raise AssertionError("the test waits for something that will never happen")
        self.now_s += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. `stall` pretends that something blocked it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def stall(self, duration_s: float) -> None:
        self._jumping.now_s += duration_s


def run_virtual(test: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as ``asyncio.run`` does, in virtual time."""
    loop = VirtualTimeLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(test)
    finally:
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


def stall_loop(duration_s: float) -> None:
    """Pretend that the running loop was blocked."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.stall(duration_s)
