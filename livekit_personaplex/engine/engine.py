"""The engine on the asyncio loop: who has a slot, what the core's thread reports, what is counted.

It knows nothing of sockets. Everything here runs on one loop; the core runs in its own thread.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from livekit_personaplex.audio import FRAME_S
from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.recorder import Recording
from livekit_personaplex.engine.scheduler import SessionStep
from livekit_personaplex.engine.session import Session
from livekit_personaplex.engine.slots import SlotTable
from livekit_personaplex.engine.stats import EngineCounters
from livekit_personaplex.engine.steering import (
    SayRefused,
    Steered,
    command_of,
    opening_commands,
)
from livekit_personaplex.engine.thread import (
    CoreEvent,
    CoreFailed,
    CoreLoaded,
    CoreThread,
    CoreTicked,
    OpenFailed,
    SlotFreed,
)
from livekit_personaplex.errors import (
    ConfigError,
    EngineDiedError,
    EngineError,
    EngineStartError,
    PersonaPlexError,
    ProtocolError,
    SessionClosedError,
)
from livekit_personaplex.log import logger
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.protocol import (
    OpenRequest,
    SayRequest,
    SteeringRequest,
    UserFrame,
)
from livekit_personaplex.wire.stats import EngineStats, PersonaLength

PREPARE_THREADS = 2
JOIN_TIMEOUT_S = 2.0
STUCK_JOIN_TIMEOUT_S = 0.1


class EnginePhase(Enum):
    """Life of an engine."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSING = "closing"


class Engine:
    """Sessions, slots and the core behind them.

    Attributes:
        phase: Where in its life the engine is.
        failure: What ended it, once it has failed.
        failed: Set when it has failed; the process should end then.
        counters: What has happened so far.
    """

    def __init__(self, settings: EngineSettings, load: Callable[[], Core]) -> None:
        """Make an engine that loads nothing yet.

        Args:
            settings: Bounds and options; what concerns the model is for `load`.
            load: Makes the core; runs in the core's thread.
        """
        self.phase = EnginePhase.LOADING
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self.counters = EngineCounters()
        self._settings = settings
        self._core: Core | None = None
        self._slots = SlotTable(0)
        self._sessions: dict[str, Session] = {}
        self._loop = asyncio.get_running_loop()
        self._loaded = asyncio.Event()
        self._preparers = ThreadPoolExecutor(PREPARE_THREADS, thread_name_prefix="prompt")
        self._writes: set[asyncio.Future[None]] = set()
        self._watchdog: asyncio.TimerHandle | None = None
        self._thread = CoreThread(load, self._post, max_backlog_frames=settings.max_backlog_frames)

    async def start(self) -> None:
        """Load the core; returns when sessions may come.

        Raises:
            PersonaPlexError: What loading raised on purpose; `EngineStartError` for the rest.
        """
        self._thread.start()
        await self._loaded.wait()
        if isinstance(self.failure, PersonaPlexError):
            raise self.failure
        if self.failure is not None:
            raise EngineStartError(f"the model did not load: {self.failure}") from self.failure
        self._check_for_hang()

    @property
    def is_ready(self) -> bool:
        """Whether it takes sessions."""
        return self.phase is EnginePhase.READY

    @property
    def device(self) -> str:
        """Where the model runs."""
        return self._settings.device

    def voices(self) -> list[str]:
        """Names of the voices; none before the core is loaded."""
        return [] if self._core is None else sorted(self._core.voices)

    async def measure_persona(self, persona: str) -> PersonaLength | None:
        """Say how long a persona is; None before the core is loaded."""
        if self._core is None:
            return None
        return await self._loop.run_in_executor(
            self._preparers, self._core.measure_persona, persona
        )

    def stats(self) -> EngineStats:
        """Give the counters of this moment."""
        p50_ms, p99_ms, max_ms = self.counters.tick_ms(0.5, 0.99, 1.0)
        return EngineStats(
            ready=self.is_ready,
            slots=len(self._slots),
            used=self._slots.num_used,
            ticks=self.counters.ticks,
            tick_p50_ms=p50_ms,
            tick_p99_ms=p99_ms,
            tick_max_ms=max_ms,
            overruns=self.counters.overruns,
            backlog_frames=self._thread.backlog_frames,
            dropped_frames=self.counters.dropped_frames,
            user_frames=self.counters.user_frames,
            agent_frames=self.counters.agent_frames,
            opened=self.counters.opened,
            refused=self.counters.refused,
            failed=self.counters.failed,
            uptime_s=round(self.counters.uptime_s, 3),
            tick_s=self.counters.tick_s.read(),
            open_s=self.counters.open_s.read(),
            call_audio_s=self.counters.call_audio_s.read(),
        )

    def reserve(self, request: OpenRequest) -> Session:
        """Give a slot to a new session, at once; `prepare` has to follow.

        Raises:
            CapacityError: Every slot is taken.
            EngineError: The engine is not ready.
        """
        if self._core is None or not self.is_ready:
            raise EngineError(f"this engine takes no sessions now: it is {self.phase.value}")
        session_id = secrets.token_hex(8)
        decoder = self._core.text_decoder()
        session = Session(
            session_id,
            self._slots.reserve(session_id),
            request,
            decoder=decoder,
            recording=None if self._settings.record_dir is None else Recording(),
        )
        self._sessions[session_id] = session
        self._thread.add(session_id, session.slot)
        return session

    async def prepare(self, session: Session) -> None:
        """Lay out the session's prompt beside the ticks, then give it to the core.

        The session says ready when the core is done with it.

        Raises:
            ConfigError: The voice is unknown, or persona or greeting is too long.
        """
        core, request = self._core, session.request
        assert core is not None
        plan, commands = await self._loop.run_in_executor(
            self._preparers,
            lambda: (core.prepare(request.voice, request.persona), opening_commands(core, request)),
        )
        if session.is_closing:
            return
        session.enter_core(plan.num_positions)
        self._thread.open(session.session_id, session.slot, plan, session.sampling)
        for command in commands:
            self._thread.steer(session.session_id, session.slot, command)

    def steer(self, session: Session, request: SteeringRequest) -> None:
        """Ask something of a session that is ready; words that cannot be said are refused.

        Raises:
            ProtocolError: The session is not ready.
        """
        if not session.is_ready:
            raise ProtocolError("say, stop_saying and release come after ready")
        if session.is_closing:
            return
        assert self._core is not None
        try:
            command = command_of(self._core, request)
        except ConfigError as error:
            assert isinstance(request, SayRequest), request
            session.refuse(request.number, error)
            return
        self._thread.steer(session.session_id, session.slot, command)

    def push(self, session: Session, frame: UserFrame) -> None:
        """Leave a session's user frame for the next tick."""
        num_dropped = self._thread.push(session.session_id, frame)
        session.num_dropped += num_dropped
        self.counters.user_frames += 1
        self.counters.add_dropped(num_dropped)

    def close(self, session: Session) -> None:
        """Take a session's slot back, whatever it is doing; `Session.freed` follows. Idempotent."""
        if session.is_closing:
            return
        session.is_closing = True
        self._slots.mark_closing(session.slot)
        if session.is_in_core:
            self._thread.close(session.session_id, session.slot)
        else:
            self._thread.drop(session.session_id)
            self._free(session)
        if session.has_failed and session.is_ready:
            self.counters.failed += 1

    def begin_stop(self) -> None:
        """Take no more sessions and tell those that are there; their connections close them."""
        if self.phase is not EnginePhase.FAILED:
            self.phase = EnginePhase.CLOSING
        for session in list(self._sessions.values()):
            session.fail(SessionClosedError("the engine is shutting down"))

    async def finish_stop(self) -> bool:
        """End the core's thread and finish recordings. False: it hangs, or still loads."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._preparers.shutdown(wait=False, cancel_futures=True)
        self._thread.stop()
        is_stuck = self._core is None or self._thread.busy_s > self._settings.tick_timeout_s
        timeout_s = STUCK_JOIN_TIMEOUT_S if is_stuck else JOIN_TIMEOUT_S
        has_ended = await self._loop.run_in_executor(None, self._thread.join, timeout_s)
        if self._writes:
            await asyncio.wait(self._writes)
        return has_ended

    def _post(self, event: CoreEvent) -> None:
        self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: CoreEvent) -> None:
        match event:
            case CoreTicked():
                self._on_tick(event)
            case SlotFreed():
                self._free(self._sessions[event.session_id])
            case OpenFailed():
                self._sessions[event.session_id].fail(event.error)
            case Steered():
                self._sessions[event.session_id].note_steered(event)
            case SayRefused():
                self._on_refusal(event)
            case CoreLoaded():
                self._core = event.core
                self._slots = SlotTable(event.core.num_slots)
                if self.phase is EnginePhase.LOADING:
                    self.phase = EnginePhase.READY
                self._loaded.set()
            case CoreFailed():
                self._fail(event.error)

    def _on_tick(self, event: CoreTicked) -> None:
        self.counters.add_tick(event.tick_s)
        for session_id in event.report.opened:
            session = self._sessions[session_id]
            if not session.is_closing:
                self._slots.mark_live(session.slot)
                self._tell_ready(session)
        for step in event.report.steps:
            session = self._sessions[step.session_id]
            if not session.is_closing:
                self._deliver(session, step)

    def _tell_ready(self, session: Session) -> None:
        session.tell_ready()
        self.counters.opened += 1
        self.counters.open_s.add(session.age_s)
        logger.info(
            "session ready",
            extra={
                "session": session.session_id,
                "slot": session.slot,
                "open_ms": round(session.age_s * 1e3, 1),
                "prompt_steps": session.prompt_steps,
            },
        )

    def _on_refusal(self, event: SayRefused) -> None:
        number = event.command.number
        assert number is not None, "a greeting finds an empty ring"
        self._sessions[event.session_id].refuse(number, event.error)

    def _deliver(self, session: Session, step: SessionStep) -> None:
        self.counters.agent_frames += 1
        try:
            session.deliver(step)
        except Exception:
            # The border of one session: whatever is wrong with it, the others go on.
            logger.exception("a session failed", extra={"session": session.session_id})
            session.fail(EngineError("this session failed inside the engine"))

    def _free(self, session: Session) -> None:
        self._slots.free(session.slot)
        del self._sessions[session.session_id]
        session.freed.set()
        audio_s = session.num_frames * FRAME_S
        if session.is_ready:
            self.counters.call_audio_s.add(audio_s)
        logger.info(
            "session over",
            extra={
                "session": session.session_id,
                "slot": session.slot,
                "has_failed": session.has_failed,
                "duration_s": round(session.age_s, 3),
                "audio_s": round(audio_s, 2),
                "frames": session.num_frames,
                "dropped": session.num_dropped,
            },
        )
        if session.recording is not None:
            self._write(session, session.recording)

    def _write(self, session: Session, recording: Recording) -> None:
        assert self._settings.record_dir is not None
        write = self._loop.run_in_executor(
            None,
            recording.write,
            self._settings.record_dir,
            session.session_id,
            session.request,
            session.sampling,
        )
        self._writes.add(write)
        write.add_done_callback(self._on_written)

    def _on_written(self, write: "asyncio.Future[None]") -> None:
        self._writes.discard(write)
        if (error := write.exception()) is not None:
            logger.error("a recording could not be written", exc_info=error)

    def _check_for_hang(self) -> None:
        limit_s = self._settings.tick_timeout_s
        if self._thread.busy_s > limit_s:
            logger.critical("a tick hangs; the engine ends", extra={"limit_s": limit_s})
            self._fail(EngineError(f"a tick took longer than {limit_s:g} s"))
        else:
            self._watchdog = self._loop.call_later(min(1.0, limit_s / 4), self._check_for_hang)

    def _fail(self, error: Exception) -> None:
        if self.phase is EnginePhase.FAILED:
            return
        self.phase = EnginePhase.FAILED
        self.failure = error
        for session in list(self._sessions.values()):
            session.fail(EngineDiedError("the engine failed and is ending; place the call again"))
        self.failed.set()
        self._loaded.set()
