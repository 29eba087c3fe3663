# /// script
# requires-python = ">=3.10,<3.14"
# dependencies = ["livekit-personaplex"]
#
# [tool.uv.sources]
# livekit-personaplex = { path = "..", editable = true }
# ///
"""An agent whose caller can be read too: a speech recogniser listens beside the model.

    uv run examples/captions_agent.py start

PersonaPlex answers what it hears and never writes it down. What the recogniser reads goes to the
room's transcript and to the chat history, in order with the agent's words; the model sees none of
it. It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET, and answers calls to
"personaplex".
"""

from typing import Any

from livekit.agents import (
    Agent,
    AgentSession,
    CloseEvent,
    ConversationItemAddedEvent,
    JobContext,
    cli,
    inference,
    stt,
)
from livekit.agents.llm import ChatMessage
from livekit.agents.voice import room_io

from livekit_personaplex import PersonaPlexModel, PersonaPlexServer

JOIN_TIMEOUT_S = 60.0

server = PersonaPlexServer()


def make_recognizer() -> stt.STT[Any]:
    """Any LiveKit STT that streams; this one runs in LiveKit Cloud, paid with the same keys.

    One that runs here, rough and free: `livekit_personaplex.LocalSTT()`, after
    ``pip install 'livekit-personaplex[captions]'``.
    """
    return inference.STT("deepgram/nova-3", language="en")


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    """Answer one call, and print what both said when they have said it."""
    recognizer = make_recognizer()
    ctx.add_shutdown_callback(recognizer.aclose)
    call = PersonaPlexModel(user_stt=recognizer, auto_arm=False).for_call(ctx.job.metadata)
    session = AgentSession(
        llm=call,
        turn_handling={"turn_detection": "realtime_llm"},
        vad=None,
        aec_warmup_duration=None,
        user_away_timeout=None,
    )

    @session.on("conversation_item_added")
    def show(event: ConversationItemAddedEvent) -> None:
        if isinstance(event.item, ChatMessage):
            print(f"{event.item.role}: {event.item.text_content}", flush=True)

    @session.on("close")
    def end_job(event: CloseEvent) -> None:
        ctx.shutdown(reason=event.reason.value)

    await session.start(
        Agent(instructions="You enjoy having a good conversation. Your name is Ann."),
        room=ctx.room,
        room_options=room_io.RoomOptions(
            text_input=False,
            audio_input=room_io.AudioInputOptions(frame_size_ms=20, pre_connect_audio=False),
        ),
        session_host=False,
    )
    if not await call.arm_when_heard(session, timeout_s=JOIN_TIMEOUT_S):
        ctx.shutdown(reason="nobody joined")


if __name__ == "__main__":
    cli.run_app(server)
