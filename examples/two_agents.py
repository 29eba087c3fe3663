# /// script
# requires-python = ">=3.10,<3.14"
# dependencies = ["livekit-personaplex"]
#
# [tool.uv.sources]
# livekit-personaplex = { path = "..", editable = true }
# ///
"""Two agents talk to each other in one room, each with a voice and a persona of its own.

    uv run examples/two_agents.py start
    lk dispatch create --room duet --agent-name personaplex --metadata \\
        '{"voice": "NATF2",
          "persona": "You enjoy having a good conversation. Your name is Ann."}'
    lk dispatch create --room duet --agent-name personaplex --metadata \\
        '{"voice": "NATM1", "greeting": "Hello, who is there?",
          "persona": "You enjoy having a good conversation. Your name is Bob."}'

They take two slots. Whoever joins the room hears both, and is heard by neither. It needs
LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET, and takes DUET_S, how long they talk.
"""

import asyncio
import os

from livekit import rtc
from livekit.agents import Agent, AgentSession, CloseEvent, JobContext, cli
from livekit.agents.voice import room_io

from livekit_personaplex import PersonaPlexModel, PersonaPlexServer

DUET_S = float(os.environ.get("DUET_S", "180"))  # two agents would never stop by themselves
JOIN_TIMEOUT_S = 60.0

server = PersonaPlexServer()
model = PersonaPlexModel(auto_arm=False)  # neither begins before the other is there

ROOM = room_io.RoomOptions(
    participant_kinds=[rtc.ParticipantKind.PARTICIPANT_KIND_AGENT],  # by default, all but agents
    text_input=False,
    audio_input=room_io.AudioInputOptions(
        sample_rate=24_000, frame_size_ms=20, pre_connect_audio=False, auto_gain_control=False
    ),
    audio_output=room_io.AudioOutputOptions(sample_rate=24_000),
)


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    """Be one of the two; when one leaves, so does the other."""
    call = model.for_call(ctx.job.metadata)
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

    await session.start(
        Agent(instructions="You enjoy having a good conversation."),
        room=ctx.room,
        room_options=ROOM,
        session_host=False,
    )
    if not await call.arm_when_heard(session, timeout_s=JOIN_TIMEOUT_S):
        ctx.shutdown(reason="the other agent did not come")
        return
    asyncio.get_running_loop().call_later(DUET_S, lambda: session.shutdown(drain=False))


if __name__ == "__main__":
    cli.run_app(server)
