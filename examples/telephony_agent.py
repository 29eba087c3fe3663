# /// script
# requires-python = ">=3.10,<3.14"
# dependencies = ["livekit-personaplex"]
#
# [tool.uv.sources]
# livekit-personaplex = { path = "..", editable = true }
# ///
"""An agent on the telephone, through LiveKit's SIP bridge; telephony/ has what the bridge needs.

    uv run examples/telephony_agent.py start

Inbound, a dispatch rule calls it. Outbound, dispatch it into a new room, with whom to ring:

    lk dispatch create --new-room --agent-name personaplex \\
        --metadata '{"dial": "+15105550123", "greeting": "Hello, this is Blue Heron Library."}'

The rest of a call's metadata is as for any agent. The caller's keys: 0 asks for a person, # hangs
up. Who may dispatch it may ring anybody at your cost: with PHONE_TRUNK_ID set, give out no tokens
that carry a room configuration of the client's own.

It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET, and takes PHONE_TRUNK_ID (the outbound
trunk; without it nobody is rung), PHONE_OPERATOR (such as tel:+15105550199) and PHONE_MAX_CALL_S.
"""

import asyncio
import json
import logging
import os
from typing import Any

from livekit import api, rtc
from livekit.agents import Agent, AgentSession, CloseEvent, JobContext, cli
from livekit.agents.voice import room_io

from livekit_personaplex import PersonaPlexModel, PersonaPlexServer

PERSONA = "You work for Blue Heron Library which is a library and your name is Ann."
RING_S = 45
TRUNK_ID = os.environ.get("PHONE_TRUNK_ID", "")
OPERATOR = os.environ.get("PHONE_OPERATOR", "")
MAX_CALL_S = float(os.environ.get("PHONE_MAX_CALL_S", "1800"))
KEYS = "0123456789*#"  # the place of a key is its DTMF code
BETWEEN_KEYS_S = 0.25

logger = logging.getLogger("telephony-agent")
server = PersonaPlexServer()
model = PersonaPlexModel(auto_arm=False)  # a telephone is in the room while it rings

ROOM = room_io.RoomOptions(
    text_input=False,
    audio_input=room_io.AudioInputOptions(
        sample_rate=24_000,  # the bridge's 8 kHz are made wide once, by WebRTC
        frame_size_ms=20,
        pre_connect_audio=False,
        auto_gain_control=False,
    ),
    audio_output=room_io.AudioOutputOptions(sample_rate=24_000),
    delete_room_on_close=True,  # leaving would not end the call: only this hangs up
)


class PhoneCall:
    """What can be done with the call while the model talks."""

    def __init__(self, ctx: JobContext, session: AgentSession[Any]) -> None:
        self._ctx = ctx
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()
        ctx.room.on("sip_dtmf_received", self._on_key)

    async def dial(self, number: str) -> None:
        """Ring somebody; returns while it rings, `arm_when_heard` waits for the answer."""
        if not TRUNK_ID:
            raise ValueError("PHONE_TRUNK_ID is not set: this agent rings nobody")
        await self._ctx.api.sip.create_sip_participant(
            api.CreateSIPParticipantRequest(
                sip_trunk_id=TRUNK_ID,
                sip_call_to=number,
                room_name=self._ctx.room.name,
                participant_identity="phone",
                ringing_timeout={"seconds": RING_S},
                max_call_duration={"seconds": int(MAX_CALL_S) + RING_S},
            )
        )

    async def press(self, keys: str) -> None:
        """Send DTMF, as to get through somebody's menu."""
        for key in keys:
            await self._ctx.room.local_participant.publish_dtmf(code=KEYS.index(key), digit=key)
            await asyncio.sleep(BETWEEN_KEYS_S)

    async def transfer(self) -> None:
        """Hand the caller to a person; if that fails, they keep talking to the model."""
        caller = self._session.room_io.linked_participant
        if not OPERATOR or caller is None:
            logger.warning("nobody to transfer the call to; set PHONE_OPERATOR")
            return
        try:
            await self._ctx.transfer_sip_participant(caller, OPERATOR)
        except api.TwirpError as error:
            logger.warning("could not transfer the call: %s", error.message)

    def hang_up(self) -> None:
        """End the call, in the middle of a word if need be; its room is deleted with it."""
        self._session.shutdown(drain=False)

    def limit(self, duration_s: float) -> None:
        """Hang up after so long."""
        asyncio.get_running_loop().call_later(duration_s, self.hang_up)

    def _on_key(self, event: rtc.SipDTMF) -> None:
        caller = self._session.room_io.linked_participant
        if caller is None or event.participant is None:
            return
        if event.participant.identity != caller.identity:
            return  # anybody in a room may send keys; only the caller's count
        if event.digit == "#":
            self.hang_up()
        elif event.digit == "0":
            transfer = asyncio.create_task(self.transfer())
            self._tasks.add(transfer)
            transfer.add_done_callback(self._tasks.discard)


def read_metadata(metadata: str) -> tuple[str, str, str]:
    """Split a job's metadata: whom to ring, which keys to press then, and what the model takes."""
    given = json.loads(metadata or "{}")
    number, keys = str(given.pop("dial", "")), str(given.pop("keys", ""))
    if set(keys) - set(KEYS):
        raise ValueError(f"keys must be of {KEYS}")
    return number, keys, json.dumps(given)


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    """Answer, or place, one call; one that cannot be served is hung up, not left to ring."""
    try:
        await begin(ctx)
    except Exception:
        await ctx.delete_room(ctx.job.room.name)
        raise


async def begin(ctx: JobContext) -> None:
    """Take a slot, ring whom there is to ring, and let the model talk once they have answered."""
    number, keys, rest = read_metadata(ctx.job.metadata)
    call = model.for_call(rest)
    session = AgentSession(
        llm=call,
        turn_handling={"turn_detection": "realtime_llm"},
        vad=None,
        aec_warmup_duration=None,
        user_away_timeout=None,
    )

    @session.on("close")
    def end_job(event: CloseEvent) -> None:
        ctx.shutdown(reason=event.reason.value)

    # The bridge answers an inbound call when it hears a track of ours: started first, armed then.
    # Outbound, the model's slot is taken while it rings, so that it can speak when it is answered.
    await session.start(
        Agent(instructions=PERSONA), room=ctx.room, room_options=ROOM, session_host=False
    )
    phone = PhoneCall(ctx, session)
    if number:
        await phone.dial(number)
    if not await call.arm_when_heard(session, timeout_s=RING_S + 15):
        logger.info("nobody answered")
        phone.hang_up()
        return
    phone.limit(MAX_CALL_S)
    await phone.press(keys)


if __name__ == "__main__":
    cli.run_app(server)
