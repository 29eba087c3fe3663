"""When a room is ready for the model to speak."""

import asyncio
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession, utils
from livekit.agents.voice.room_io import RoomIO

CALL_STATUS = "sip.callStatus"
"""Attribute of a participant on the telephone: dialing, ringing, automation, active, hangup."""
ANSWERED = "active"


async def wait_until_heard(session: AgentSession[Any], *, timeout_s: float) -> bool:
    """Wait until a caller is there and receives the agent's audio; on a telephone, has answered.

    Args:
        session: A session that has been started.
        timeout_s: How long to wait for somebody to join, and to answer.

    Returns:
        True: speech is heard from now on; at once for a session without a room, as in the console.
        False: nobody joined or answered in time, the session was closed, or the room was.
    """
    try:
        room_io = session.room_io
    except RuntimeError:
        return True
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note_close(event: object) -> None:
        if not closed.done():
            closed.set_result(None)

    session.on("close", note_close)
    # LiveKit would wait 15 s for an entrypoint that waits here, and the slot with it
    room_io.room.on("disconnected", note_close)
    ready = asyncio.ensure_future(_wait_for_listener(room_io))
    try:
        await asyncio.wait({ready, closed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return ready.done() and not closed.done()
    finally:
        session.off("close", note_close)
        room_io.room.off("disconnected", note_close)
        await utils.aio.cancel_and_wait(ready)


def is_on_the_line(participant: rtc.RemoteParticipant) -> bool:
    """Say whether somebody hears what is sent to a participant: not while a telephone rings."""
    if participant.kind != rtc.ParticipantKind.PARTICIPANT_KIND_SIP:
        return True
    return participant.attributes.get(CALL_STATUS, ANSWERED) == ANSWERED


async def _wait_for_listener(room_io: RoomIO) -> None:
    await room_io.wait_for_ready()
    changed = asyncio.Event()

    def note(*_: object) -> None:
        changed.set()

    # who rang may hang up, and somebody else join: whoever RoomIO listens to then is asked
    room_io.room.on("participant_attributes_changed", note)
    room_io.room.on("participant_connected", note)
    try:
        while (linked := room_io.linked_participant) is None or not is_on_the_line(linked):
            await changed.wait()
            changed.clear()
    finally:
        room_io.room.off("participant_attributes_changed", note)
        room_io.room.off("participant_connected", note)
