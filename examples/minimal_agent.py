# /// script
# requires-python = ">=3.10,<3.14"
# dependencies = ["livekit-personaplex"]
#
# [tool.uv.sources]
# livekit-personaplex = { path = "..", editable = true }
# ///
"""The shortest agent that talks with PersonaPlex; ../agent.py is the one to build on.

    uv run examples/minimal_agent.py start

It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET, and answers calls to "personaplex".
"""

from livekit.agents import Agent, AgentSession, JobContext, cli
from livekit.agents.voice import room_io

from livekit_personaplex import PersonaPlexModel, PersonaPlexServer

server = PersonaPlexServer()


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    """Answer one call; LiveKit ends it when the caller hangs up."""
    session = AgentSession(
        llm=PersonaPlexModel(),
        turn_handling={"turn_detection": "realtime_llm"},  # the model takes turns by itself
        vad=None,  # the plugin tells LiveKit who speaks
        aec_warmup_duration=None,  # the default would make the model deaf at first
    )
    session.on("close", lambda event: ctx.shutdown(reason=event.reason.value))
    await session.start(
        Agent(instructions="You enjoy having a good conversation. Your name is Ann."),
        room=ctx.room,
        room_options=room_io.RoomOptions(
            audio_input=room_io.AudioInputOptions(frame_size_ms=20, pre_connect_audio=False),
        ),
    )


if __name__ == "__main__":
    cli.run_app(server)
