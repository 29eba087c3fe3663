"""One caller's conversation with PersonaPlex, as LiveKit's duplex contract wants it.

`_update_session` leases a slot, so that a call which cannot be served fails when it starts. From
`arm` on the model's time runs: `Listener` sends a frame every 80 ms, each brings one frame back,
`Speaker` plays it. A session ends with `aclose`, or with one unrecoverable ``error`` event; its
audio stream never just stops.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, Callable
from dataclasses import asdict
from typing import NoReturn

from livekit import rtc
from livekit.agents import NOT_GIVEN, NotGivenOr, llm, utils
from livekit.agents.metrics.base import Metadata

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.errors import EngineDiedError, EngineError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.plugin.listener import Listener
from livekit_personaplex.plugin.livekit_errors import call_error, start_error
from livekit_personaplex.plugin.opening import open_session
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.plugin.speaker import WORDLESS_TOKENS, Speaker
from livekit_personaplex.plugin.usage import FrameCounts, SessionStats, UsageReporter
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.protocol import AgentFrame

REPORT_EVERY_FRAMES = 250
"""Usage is reported every 20 s, and when the session closes."""
MAX_UNHEARD_FRAMES = 125
"""An engine that has heard nothing of the last 10 s is given up."""
UNARMED_WARNING_S = 10.0


class PersonaPlexSession(llm.DuplexSession[NoReturn]):
    """A session of `PersonaPlexModel`; an agent reaches it as ``agent.duplex_session``.

    Lives on the event loop that made it; its methods must be called there.
    """

    def __init__(
        self,
        model: llm.DuplexModel,
        options: PersonaPlexOptions,
        *,
        is_armed: bool,
        on_closed: Callable[["PersonaPlexSession"], None],
    ) -> None:
        """Used by `PersonaPlexModel.session`. Opens nothing yet."""
        super().__init__(model)
        self._options = options
        self._is_armed = is_armed
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._instructions = ""
        self._engine: EngineSession | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._reporter: UsageReporter | None = None
        self._counts = FrameCounts()
        self._early: list[AgentFrame] = []
        self._unarmed_s = 0.0
        self._has_failed = False
        self._audio = utils.aio.Chan[llm.DuplexAudioFrame]()
        self._listener = Listener(send=self._send, on_speech=self._tell_speech, loop=self._loop)
        self._speaker = Speaker(
            say=lambda delta: self.emit("transcript_delta", delta),
            play=self._audio.send_nowait,
            loop=self._loop,
            min_silence_ms=options.min_silence_ms,
            prebuffer_ms=options.output_prebuffer_ms,
        )

    @property
    def session_id(self) -> str:
        """The engine's name for this session, as its logs and recordings have it."""
        return self._opened.session_id

    @property
    def seed(self) -> int:
        """The seed in use: with it, and the same audio, the conversation repeats itself."""
        return self._opened.seed

    @property
    def stats(self) -> SessionStats:
        """Figures of the session so far."""
        clock = self._listener.clock
        return SessionStats(
            frames_sent=self._counts.sent,
            frames_received=self._counts.received,
            silence_frames=clock.silence_frames if clock else 0,
            dropped_ms=clock.dropped_samples * 1000 / SAMPLE_RATE_HZ if clock else 0.0,
            lost_frames=self._counts.lost,
            unheard_frames=self._counts.unheard,
            latency_p50_ms=self._counts.latency_ms(50),
            latency_p99_ms=self._counts.latency_ms(99),
        )

    def arm(self) -> None:
        """Let the model's time begin: it hears, and may speak, from now on. Idempotent.

        `PersonaPlexModel.arm` does it for every session of a call.
        """
        self._is_armed = True
        self._begin()

    # LiveKit's contract

    @property
    def audio_stream(self) -> AsyncIterable[llm.DuplexAudioFrame]:
        """The model's audio, its silence included, one frame every 80 ms."""
        return self._audio

    @property
    def tools(self) -> llm.ToolContext:
        """None: the model cannot call tools."""
        return llm.ToolContext.empty()

    def push_audio(self, frame: rtc.AudioFrame) -> None:
        """Take the caller's audio: any rate, channels and length. Never raises, never blocks."""
        if self._is_over or self._engine is None:
            return
        if not self._is_armed:
            if not self._options.auto_arm:
                self._warn_when_unarmed(frame.duration)
                return
            self._is_armed = True
            self._begin(heard_s=frame.duration)
        try:
            self._listener.push(frame)
        except Exception as error:
            # LiveKit's audio task would end here, and the call go deaf without a word
            logger.exception("could not take the caller's audio")
            self._fail(error)

    async def aclose(self) -> None:
        """End the session and free its slot. Idempotent; takes less than 3 s."""
        await super().aclose()
        if self._closer is None:
            self._closer = asyncio.create_task(self._close(), name="personaplex session close")
        await asyncio.shield(self._closer)

    async def _update_session(
        self,
        *,
        instructions: NotGivenOr[str] = NOT_GIVEN,
        chat_ctx: NotGivenOr[llm.ChatContext] = NOT_GIVEN,
        tools: NotGivenOr[list[llm.Tool]] = NOT_GIVEN,
    ) -> None:
        if utils.is_given(tools):
            await self._update_tools(tools)
        if utils.is_given(instructions):
            await self._update_instructions(instructions)
        if utils.is_given(chat_ctx):
            await self._append_items(chat_ctx.items)
        if self._engine is None:
            await self._open()
        await super()._update_session()

    async def _update_instructions(self, instructions: str) -> None:
        if self._engine is None:
            self._instructions = instructions
        elif instructions != self._instructions:
            raise llm.RealtimeError(
                "PersonaPlex takes its persona when a call begins and keeps it; to change it, hand "
                "over to another Agent, which begins a new conversation"
            )

    async def _append_items(self, items: list[llm.ChatItem]) -> None:
        messages = [item for item in items if item.type == "message" and item.role != "system"]
        if messages:
            level = logger.warning if self._engine is None else logger.debug
            level(
                "PersonaPlex cannot be told about earlier or typed messages; they are ignored",
                extra={"messages": len(messages)},
            )

    async def _update_tools(self, tools: list[llm.Tool]) -> None:
        if tools:
            raise llm.RealtimeError(
                f"PersonaPlex cannot call tools, and was given {len(tools)}; "
                "run the agent without tools"
            )

    def _update_options(
        self, *, tool_choice: NotGivenOr[llm.ToolChoice | None] = NOT_GIVEN
    ) -> None:
        pass  # there are no tools to choose from

    def _generate_reply(
        self,
        *,
        instructions: NotGivenOr[str] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        tools: NotGivenOr[list[llm.Tool]] = NOT_GIVEN,
    ) -> None:
        raise llm.RealtimeError(
            "PersonaPlex decides for itself when to speak, generate_reply() cannot make it; "
            "what it should say, and whether it greets, belongs in Agent(instructions=...)"
        )

    # from the slot to its end

    @property
    def _opened(self) -> EngineSession:
        if self._engine is None:
            raise EngineError("the session is not open yet; AgentSession.start() opens it")
        return self._engine

    @property
    def _is_over(self) -> bool:
        return self._closing or self._has_failed

    async def _open(self) -> None:
        began_s = self._loop.time()
        persona = self._options.persona
        try:
            engine = await open_session(
                self._options, self._instructions if persona is None else persona
            )
        except PersonaPlexError as error:
            raise start_error(error) from error
        if self._closing:
            await engine.aclose()
            raise llm.RealtimeError("the session was closed while it was being opened")
        self._engine = engine
        acquired_s = self._loop.time()
        self._reporter = UsageReporter(
            label=self._duplex_model.label,
            metadata=Metadata(
                model_name=self._duplex_model.model, model_provider=self._duplex_model.provider
            ),
            request_id=engine.session_id,
            now_s=acquired_s,
        )
        self._report_connection_acquired(acquired_s - began_s)
        logger.info(
            "conversation opened",
            extra={
                "session": engine.session_id,
                "seed": engine.seed,
                "open_ms": round((acquired_s - began_s) * 1000, 1),
            },
        )
        self._receiver = asyncio.create_task(self._receive(engine), name="personaplex receiver")
        if self._is_armed:
            self._begin()

    def _begin(self, *, heard_s: float = 0.0) -> None:
        if self._engine is None or self._listener.clock is not None or self._is_over:
            return
        self._listener.start(heard_s=heard_s)
        early, self._early = self._early, []
        for frame in early:
            self._speaker.speak(frame)

    def _send(self, pcm: bytes) -> None:
        if self._is_over:
            return
        if self._counts.unheard > MAX_UNHEARD_FRAMES:
            self._fail(EngineDiedError("the engine has not heard the caller for 10 s"))
            return
        # once the engine's side has ended, the receiver is about to say why
        with contextlib.suppress(EngineError):
            self._opened.send_frame(pcm)
            self._counts.count_sent(now_s=self._loop.time())

    async def _receive(self, engine: EngineSession) -> None:
        try:
            while True:
                self._take(await engine.receive())
        except PersonaPlexError as error:
            self._fail(error)
        except Exception as error:
            # a call without a receiver would be mute and never end
            logger.exception("the session failed")
            self._fail(error)

    def _take(self, frame: AgentFrame) -> None:
        has_word = frame.tokens[0] not in WORDLESS_TOKENS
        self._counts.count_received(heard=frame.heard, has_word=has_word, now_s=self._loop.time())
        if self._is_over:
            return
        if self._listener.clock is None:
            self._early.append(frame)
        else:
            self._speaker.speak(frame)
        if self._counts.received % REPORT_EVERY_FRAMES == 0:
            self._report_usage()

    def _fail(self, error: Exception) -> None:
        """End the call, loudly: LiveKit closes the session when it hears of it."""
        if self._is_over:
            return
        self._has_failed = True
        self._listener.close()
        self._speaker.close()
        self.emit("error", call_error(error, label=self._duplex_model.label))
        self._audio.close()

    async def _close(self) -> None:
        self._listener.close()
        self._speaker.close()
        if self._receiver is not None:
            await utils.aio.cancel_and_wait(self._receiver)
        if self._engine is not None:
            await self._engine.aclose()
            logger.info(
                "conversation ended",
                extra={"session": self._engine.session_id, **asdict(self.stats)},
            )
        self._report_usage()
        self._audio.close()
        self._on_closed(self)

    def _report_usage(self) -> None:
        if self._reporter is not None:
            report = self._reporter.report(self._counts, now_s=self._loop.time())
            self.emit("metrics_collected", report)

    def _tell_speech(self, is_speaking: bool) -> None:
        if is_speaking:
            self.emit("input_speech_started", llm.InputSpeechStartedEvent())
        else:
            self.emit(
                "input_speech_stopped",
                llm.InputSpeechStoppedEvent(user_transcription_enabled=False),
            )

    def _warn_when_unarmed(self, pushed_s: float) -> None:
        before_s, self._unarmed_s = self._unarmed_s, self._unarmed_s + pushed_s
        if before_s < UNARMED_WARNING_S <= self._unarmed_s:
            logger.warning(
                "the caller has been talking for 10 s to a model that is not armed; call "
                "arm_when_heard() on the model, or leave auto_arm on"
            )
