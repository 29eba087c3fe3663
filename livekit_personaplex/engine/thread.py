"""The one thread that may call the core: it opens, closes and ticks, and reports to a listener.

A tick begins as soon as any session is due and the core is idle; what comes meanwhile forms the
next one. Callers on other threads leave frames and commands under one lock that is never held
during a tick. Anything the core raises ends the thread, loudly.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.scheduler import Scheduler, TickReport
from livekit_personaplex.engine.steering import Command, Say, SayRefused, Steered, carry_out
from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.protocol import UserFrame

if TYPE_CHECKING:  # the plan is only handed on here
    from livekit_personaplex.model.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class CoreLoaded:
    """The core is there; sessions may come."""

    core: Core


@dataclass(frozen=True, slots=True)
class CoreTicked:
    """One tick's results."""

    report: TickReport
    tick_s: float


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """A closed session's slot has no work in flight any more."""

    session_id: str


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """The core refused one session's prompt; the others go on."""

    session_id: str
    error: PersonaPlexError


@dataclass(frozen=True, slots=True)
class CoreFailed:
    """Loading, a tick, or a change of slots raised: the thread has ended."""

    error: Exception


CoreEvent = CoreLoaded | CoreTicked | SlotFreed | OpenFailed | Steered | SayRefused | CoreFailed


class CoreThread:
    """Runs a core in a thread of its own. Its methods may be called from any thread."""

    def __init__(
        self,
        load: Callable[[], Core],
        listener: Callable[[CoreEvent], None],
        *,
        max_backlog_frames: int,
    ) -> None:
        """Make the thread; `start` starts it.

        Args:
            load: Makes the core, in the new thread. May take minutes.
            listener: Told every event, in the new thread; must not block.
            max_backlog_frames: Bound of every session's backlog.
        """
        self._load = load
        self._listener = listener
        self._wake = threading.Condition()
        self._scheduler = Scheduler(max_backlog_frames)
        self._commands: list[Callable[[Core], None]] = []
        self._is_stopping = False
        self._work_began_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="engine core", daemon=True)

    def start(self) -> None:
        """Start the thread; it loads the core first."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the tick in flight. Does not wait: see `join`."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; says whether it came in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def busy_s(self) -> float:
        """How long the core has been at its present tick or commands; 0 while it is idle."""
        began_s = self._work_began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    @property
    def backlog_frames(self) -> int:
        """User frames that wait for a tick."""
        with self._wake:
            return self._scheduler.backlog_frames

    def add(self, session_id: str, slot: int) -> None:
        """Make room for a session's frames; its prompt comes with `open`."""
        with self._wake:
            self._scheduler.add(session_id, slot)

    def drop(self, session_id: str) -> None:
        """Forget a session that was added and never opened."""
        with self._wake:
            self._scheduler.remove(session_id)

    def push(self, session_id: str, frame: UserFrame) -> int:
        """Leave a user frame for the next tick. Returns how many older ones it pushed out."""
        with self._wake:
            num_dropped = self._scheduler.push(session_id, frame)
            self._wake.notify()
        return num_dropped

    def open(self, session_id: str, slot: int, plan: "PromptPlan", sampling: Sampling) -> None:
        """Give an added session's prompt to the core, between ticks."""
        self._send(
            partial(self._open, session_id=session_id, slot=slot, plan=plan, sampling=sampling)
        )

    def steer(self, session_id: str, slot: int, command: Command) -> None:
        """Ask something of an opened session, between ticks; `Steered` or `SayRefused` follows."""
        self._send(partial(self._steer, session_id=session_id, slot=slot, command=command))

    def close(self, session_id: str, slot: int) -> None:
        """Take an opened session's slot back, between ticks; `SlotFreed` follows."""
        self._send(partial(self._close, session_id=session_id, slot=slot))

    def _send(self, command: Callable[[Core], None]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _run(self) -> None:
        try:
            core = self._load()
            self._listener(CoreLoaded(core))
            while self._run_once(core):
                pass
        except Exception as error:
            # The border of this thread. What a checkpoint or a setting lacks needs no traceback.
            if not isinstance(error, PersonaPlexError):
                logger.exception("the core of the engine failed")
            self._listener(CoreFailed(error))

    def _run_once(self, core: Core) -> bool:
        """Wait for work, then run all commands and one tick. False: the thread shall end."""
        with self._wake:
            while not (self._is_stopping or self._commands or self._scheduler.has_work):
                self._wake.wait()
            commands, self._commands = self._commands, []
            is_stopping = self._is_stopping
        self._work_began_s = time.monotonic()
        for command in commands:
            command(core)
        if not is_stopping:
            self._tick(core)
        self._work_began_s = None
        return not is_stopping

    def _tick(self, core: Core) -> None:
        with self._wake:
            plan = self._scheduler.plan_tick()
        if not plan.owners:
            return
        began_s = time.monotonic()
        result = core.tick(plan.frames)
        tick_s = time.monotonic() - began_s
        with self._wake:
            report = self._scheduler.finish_tick(plan, result)
        self._listener(CoreTicked(report, tick_s))

    def _open(
        self, core: Core, *, session_id: str, slot: int, plan: "PromptPlan", sampling: Sampling
    ) -> None:
        try:
            core.open(slot, plan, sampling)
        except PersonaPlexError as error:
            self._listener(OpenFailed(session_id, error))
            return
        with self._wake:
            self._scheduler.begin_prompt(session_id)

    def _steer(self, core: Core, *, session_id: str, slot: int, command: Command) -> None:
        try:
            end = carry_out(command, core, slot)
        except PersonaPlexError as error:
            assert isinstance(command, Say), command
            self._listener(SayRefused(session_id, command, error))
            return
        self._listener(Steered(session_id, command, end))

    def _close(self, core: Core, *, session_id: str, slot: int) -> None:
        with self._wake:
            self._scheduler.remove(session_id)
        core.close(slot)
        self._listener(SlotFreed(session_id))
