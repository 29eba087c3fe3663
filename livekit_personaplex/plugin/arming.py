"""When a room is ready for the model to speak."""

import asyncio
from typing import Any

from livekit.agents import AgentSession, CloseEvent, utils


async def wait_until_heard(session: AgentSession[Any], *, timeout_s: float) -> bool:
    """Wait until a caller is there and receives the agent's audio.

    Args:
        session: A session that has been started.
        timeout_s: How long to wait for somebody to join.

    Returns:
        True: speech is heard from now on; at once for a session without a room, as in the console.
        False: nobody joined in time, or the session was closed.
    """
    try:
        room_io = session.room_io
    except RuntimeError:
        return True
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note_close(event: CloseEvent) -> None:
        if not closed.done():
            closed.set_result(None)

    session.on("close", note_close)
    ready = asyncio.ensure_future(room_io.wait_for_ready())
    try:
        await asyncio.wait({ready, closed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return ready.done() and not closed.done()
    finally:
        session.off("close", note_close)
        await utils.aio.cancel_and_wait(ready)
