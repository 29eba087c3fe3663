"""A LiveKit agent that talks with PersonaPlex. Copy it, and change the persona.

    LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=... python agent.py start

It answers calls that are dispatched to "personaplex"; a call's metadata may choose the voice, the
persona, a seed: {"voice": "NATM1", "persona": "You are Bob.", "seed": 7, "temperature": 0.7}.
"""

from livekit.agents import Agent, AgentSession, CloseEvent, JobContext, cli
from livekit.agents.voice import room_io

from livekit_personaplex import LocalSTT, PersonaPlexModel, PersonaPlexServer

PERSONA = "You enjoy having a good conversation. Your name is Ann."
JOIN_TIMEOUT_S = 60.0

server = PersonaPlexServer()  # starts the engine, and takes as many calls as it has slots
model = PersonaPlexModel(
    auto_arm=False,  # armed below, once the caller can hear it
    user_stt=LocalSTT.from_env(),  # the caller's words too, if PERSONAPLEX_CAPTIONS=local
)

ROOM = room_io.RoomOptions(
    text_input=False,  # typed text would cut the agent short, and the model cannot read it
    audio_input=room_io.AudioInputOptions(
        sample_rate=24_000,  # the model's own: LiveKit converts where it costs no delay
        frame_size_ms=20,  # the default, 50, does not divide the model's 80: up to 40 ms more delay
        pre_connect_audio=False,  # would arrive in one heap, and the model lives in real time
        auto_gain_control=False,  # phones and browsers have theirs; a second one raises echo
    ),
    audio_output=room_io.AudioOutputOptions(sample_rate=24_000),  # nothing to convert
    close_on_disconnect=False,  # who reloads the page finds the call again; an empty room ends it
)


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    call = model.for_call(ctx.job.metadata)
    session = AgentSession(
        llm=call,
        turn_handling={"turn_detection": "realtime_llm"},  # the model takes turns by itself
        vad=None,  # the plugin itself tells LiveKit when the caller speaks
        aec_warmup_duration=None,  # the default makes the model deaf while it speaks at first
        user_away_timeout=None,  # a silent caller is no event here
    )

    @session.on("close")
    def end_job(event: CloseEvent) -> None:  # LiveKit would keep the job, and its share of load
        ctx.shutdown(reason=event.reason.value)

    await session.start(
        Agent(instructions=PERSONA),
        room=ctx.room,
        room_options=ROOM,
        session_host=False,  # otherwise anyone in the room may read and steer the session
    )
    # the model's time begins here; what it said earlier would be played late, as all that follows
    if not await call.arm_when_heard(session, timeout_s=JOIN_TIMEOUT_S):
        ctx.shutdown(reason="nobody joined")  # frees the slot


if __name__ == "__main__":
    cli.run_app(server)
