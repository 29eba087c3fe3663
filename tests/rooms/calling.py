"""Callers who always hang up."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex

from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials

GREEDY = {"voice": "TINY0", "greedy": True}
"""What makes the small model's conversation a function of what it hears."""


@asynccontextmanager
async def calling(
    livekit: LiveKitCredentials,
    *,
    dispatch: Mapping[str, object] = GREEDY,
    outlives_s: int = 1,
) -> AsyncIterator[Caller]:
    """A caller in a new room, who leaves it when the block ends, however it ends.

    Args:
        livekit: The server.
        dispatch: What the agent's job is told.
        outlives_s: How long the room, and the agent in it, outlive the caller.
    """
    room = f"room-{token_hex(4)}"
    caller = await Caller.join(
        livekit, room=room, dispatch=dispatch, departure_timeout_s=outlives_s
    )
    try:
        yield caller
    finally:
        await caller.leave()
