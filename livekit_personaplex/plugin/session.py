"""One caller's conversation with PersonaPlex, as LiveKit's duplex contract wants it.

`_update_session` leases a slot, so that a call which cannot be served fails when it starts. From
`arm` on the model's time runs. A session ends with `aclose`, or with one unrecoverable ``error``
event; its audio stream never just stops.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterable, Callable
from typing import Literal

from livekit import rtc
from livekit.agents import NOT_GIVEN, NotGivenOr, llm, utils
from livekit.agents.metrics.base import Metadata

from livekit_personaplex.errors import ConfigError, EngineError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.plugin.attendants import AttendantOutlets, Attendants
from livekit_personaplex.plugin.conversation import Conversation, Outlets
from livekit_personaplex.plugin.livekit_errors import call_error, caption_error, start_error
from livekit_personaplex.plugin.opening import open_session
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.plugin.tracing import CallSpan, describe_opening, traced_opening
from livekit_personaplex.plugin.usage import SessionStats, UsageReporter
from livekit_personaplex.plugin.watchdogs import (
    AgentSilentEvent,
    AgentSpeakingEvent,
    WatchdogEvent,
)
from livekit_personaplex.wire.client import EngineSession

UNARMED_WARNING_S = 10.0

SessionEvents = Literal[
    "personaplex_agent_silent", "personaplex_agent_speaking", "personaplex_caller_unheard"
]


class PersonaPlexSession(llm.DuplexSession[SessionEvents]):
    """A session of `PersonaPlexModel`; an agent reaches it as ``agent.duplex_session``.

    Beside LiveKit's, it emits the events of its watchdogs: ``personaplex_agent_silent``
    (`AgentSilentEvent`), ``personaplex_agent_speaking`` (`AgentSpeakingEvent`) and
    ``personaplex_caller_unheard`` (`CallerUnheardEvent`).

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
        self._conversation: Conversation | None = None
        self._span: CallSpan | None = None
        self._closer: asyncio.Task[None] | None = None
        self._unarmed_s = 0.0
        self._audio = utils.aio.Chan[llm.DuplexAudioFrame]()
        self._attendants: Attendants | None = None
        self._outlets = Outlets(
            say=lambda delta: self.emit("transcript_delta", delta),
            play=self._play,
            hear=lambda pcm: self._attending.hear(pcm),
            tell_speech=self._tell_speech,
            report=lambda usage: self.emit("metrics_collected", usage),
            fail=self._fail,
        )

    @property
    def session_id(self) -> str:
        """The engine's name for this session, as its logs and recordings have it."""
        return self._opened.engine.session_id

    @property
    def seed(self) -> int:
        """The seed in use: with it, and the same audio, the conversation repeats itself."""
        return self._opened.engine.seed

    @property
    def stats(self) -> SessionStats:
        """Figures of the session so far."""
        return self._opened.stats

    def arm(self) -> None:
        """Let the model's time begin: it hears, and may speak, from now on. Idempotent.

        `PersonaPlexModel.arm` does it for every session of a call.
        """
        self._is_armed = True
        if self._conversation is not None:
            self._conversation.begin()

    def expect_arm(self) -> None:
        """Know that `arm` will come, when somebody answers: audio until then is no mistake."""
        self._unarmed_s = math.inf

    def say_text(self, text: str) -> "asyncio.Future[bool]":
        """Let the agent say words, in the model's own voice and at its pace.

        It says them as soon as it has finished the word it is at, and none else until they are
        said; then it is free again. The caller is heard all the time. An agent that waits for the
        caller's first word waits no longer.

        Args:
            text: Up to 4,096 bytes of UTF-8.

        Returns:
            Done with True once the last word has been said, to within half a second of sound; with
            False when they were taken back, or the call has ended. Raises `ConfigError` when too
            much waits to be said. It may be forgotten.

        Raises:
            ConfigError: There are no words, or too many.
            EngineError: The session is not open, or has ended.
        """
        if not text.strip():
            raise ConfigError(
                "say_text() needs words; generate_reply() lets the agent find its own"
            )
        engine = self._opened.engine
        self._attending.stop_waiting()
        return engine.say(text)

    def stop_saying(self) -> None:
        """Take back the words that are given and not said yet, the greeting's too.

        Raises:
            EngineError: The session is not open, or has ended.
        """
        self._opened.engine.stop_saying()

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
        if self._conversation is None:
            return
        is_expected = math.isinf(self._unarmed_s)
        will_be_armed = self._is_armed or self._options.auto_arm or is_expected
        self._attending.note_pushed(frame, is_armed=will_be_armed)
        if not self._is_armed:
            if not self._options.auto_arm:
                self._warn_when_unarmed(frame.duration)
                return
            self._is_armed = True
            self._conversation.begin(heard_s=frame.duration)
        self._conversation.push(frame)

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
        if self._conversation is None:
            await self._open()
        await super()._update_session()

    async def _update_instructions(self, instructions: str) -> None:
        if self._conversation is None:
            self._instructions = instructions
        elif instructions != self._instructions:
            raise llm.RealtimeError(
                "PersonaPlex takes its persona when a call begins and keeps it; to change it, hand "
                "over to another Agent, which begins a new conversation"
            )

    async def _append_items(self, items: list[llm.ChatItem]) -> None:
        messages = [item for item in items if item.type == "message" and item.role != "system"]
        if messages:
            level = logger.warning if self._conversation is None else logger.debug
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
        if utils.is_given(instructions):
            raise llm.RealtimeError(
                "PersonaPlex cannot be told in mid-call what to talk about: give it the words with "
                "agent.duplex_session.say_text('...'), or leave the instructions out and it begins "
                "to speak with words of its own; what it should know belongs in "
                "Agent(instructions=...), how it should greet in PersonaPlexModel(greeting=...)"
            )
        try:
            engine = self._opened.engine
            self._attending.stop_waiting()
            engine.say("")
        except PersonaPlexError as error:
            raise llm.RealtimeError(str(error)) from error

    # from the slot to its end

    @property
    def _opened(self) -> Conversation:
        if self._conversation is None:
            raise EngineError("the session is not open yet; AgentSession.start() opens it")
        return self._conversation

    @property
    def _attending(self) -> Attendants:
        assert self._attendants is not None, "made with the conversation"
        return self._attendants

    async def _open(self) -> None:
        began_s = self._loop.time()
        chosen = self._options.persona
        persona = self._instructions if chosen is None else chosen
        try:
            with traced_opening() as span:
                engine = await open_session(self._options, persona)
                describe_opening(span, engine)
        except PersonaPlexError as error:
            raise start_error(error) from error
        if self._closing:
            await engine.aclose()
            raise llm.RealtimeError("the session was closed while it was being opened")
        self._take_over(engine, opened_in_s=self._loop.time() - began_s)

    def _take_over(self, engine: EngineSession, *, opened_in_s: float) -> None:
        reporter = UsageReporter(
            label=self._duplex_model.label,
            metadata=Metadata(
                model_name=self._duplex_model.model, model_provider=self._duplex_model.provider
            ),
            request_id=engine.session_id,
            now_s=self._loop.time(),
        )
        self._attendants = self._attend(engine)
        self._conversation = Conversation(engine, reporter, self._outlets, options=self._options)
        self._span = CallSpan(engine)
        self._report_connection_acquired(opened_in_s)
        opened_in_ms = round(opened_in_s * 1000, 1)
        logger.info(
            "conversation opened",
            extra={
                "session": engine.session_id,
                "seed": engine.seed,
                "open_ms": opened_in_ms,
                "prompt_steps": engine.prompt_steps,
            },
        )
        if self._is_armed:
            self._conversation.begin()

    def _fail(self, error: Exception) -> None:
        if self._span is not None:
            self._span.fail(error)
        # LiveKit closes the session when it hears of it
        self.emit("error", call_error(error, label=self._duplex_model.label))
        self._audio.close()

    async def _close(self) -> None:
        if self._attendants is not None:
            await self._attendants.aclose()
        if self._conversation is not None:
            await self._conversation.aclose()
            assert self._span is not None
            self._span.end(self._conversation.stats)
        self._audio.close()
        self._on_closed(self)

    def _play(self, frame: llm.DuplexAudioFrame) -> None:
        self._attending.note_agent(frame)
        self._audio.send_nowait(frame)

    def _attend(self, engine: EngineSession) -> Attendants:
        label = self._duplex_model.label

        def release() -> None:
            with contextlib.suppress(EngineError):  # a session that has ended says so elsewhere
                engine.release()

        outlets = AttendantOutlets(
            release=release,
            transcribe=lambda said: self.emit("input_audio_transcription_completed", said),
            report=lambda usage: self.emit("metrics_collected", usage),
            miss=lambda error: self.emit("error", caption_error(error, label=label)),
            tell=self._tell_watchdog,
        )
        return Attendants(self._options, outlets)

    def _tell_watchdog(self, event: WatchdogEvent) -> None:
        match event:
            case AgentSilentEvent():
                self.emit("personaplex_agent_silent", event)
            case AgentSpeakingEvent():
                self.emit("personaplex_agent_speaking", event)
            case _:
                self.emit("personaplex_caller_unheard", event)

    def _tell_speech(self, is_speaking: bool) -> None:
        self._attending.note_caller(is_speaking)
        if is_speaking:
            self.emit("input_speech_started", llm.InputSpeechStartedEvent())
        else:
            stopped = llm.InputSpeechStoppedEvent(user_transcription_enabled=False)
            self.emit("input_speech_stopped", stopped)

    def _warn_when_unarmed(self, pushed_s: float) -> None:
        before_s, self._unarmed_s = self._unarmed_s, self._unarmed_s + pushed_s
        if before_s < UNARMED_WARNING_S <= self._unarmed_s:
            logger.warning(
                "the caller has been talking for 10 s to a model that is not armed; call "
                "arm_when_heard() on the model, or leave auto_arm on"
            )
