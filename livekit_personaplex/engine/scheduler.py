"""What the next tick runs, and whose its results are. Pure: no clock, no thread, no tensor.

Every session keeps a short backlog of user frames, newest kept, oldest dropped, so that a slow
engine loses audio instead of falling behind. Step 0 needs no user frame: it is due as soon as the
system prompt is done; step n+1 is due when a frame waits (one frame ahead of the reference).

Live steps and batches of prompt positions take turns while both are due: an opening never waits for
more than the tick in flight, and a live session never for more than one batch.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.engine.core_protocol import AgentStep, TickResult
from livekit_personaplex.wire.protocol import UserFrame


class _Phase(Enum):
    PREPARING = "preparing"  # the core does not know it yet
    PROMPTING = "prompting"
    FIRST_STEP = "first step"
    STEPPING = "stepping"


@dataclass(slots=True)
class _Entry:
    slot: int
    phase: _Phase = _Phase.PREPARING
    backlog: deque[UserFrame] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What one tick was asked to do.

    Attributes:
        frames: Input of `Core.tick`.
        heard: The frame behind each of them.
        owners: Session that had each slot when the tick began; also of slots in their prompt.
    """

    frames: Mapping[int, NDArray[np.int16] | None]
    heard: Mapping[int, UserFrame | None]
    owners: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class SessionStep:
    """One step of one session, and the newest user frame that went into it."""

    session_id: str
    step: AgentStep
    heard: UserFrame | None


@dataclass(frozen=True, slots=True)
class TickReport:
    """Results of one tick, by session."""

    steps: list[SessionStep]
    opened: list[str]


class Scheduler:
    """Backlogs and phases of all sessions that have a slot."""

    def __init__(self, max_backlog_frames: int) -> None:
        """Make an empty scheduler."""
        self._max_backlog_frames = max_backlog_frames
        self._entries: dict[str, _Entry] = {}
        self._was_prompt_tick = False

    @property
    def backlog_frames(self) -> int:
        """User frames that wait, of all sessions."""
        return sum(len(entry.backlog) for entry in self._entries.values())

    @property
    def has_work(self) -> bool:
        """Whether a tick would advance anything."""
        return any(_is_due(entry) for entry in self._entries.values())

    def add(self, session_id: str, slot: int) -> None:
        """A session has a slot; its frames may come from now on."""
        assert session_id not in self._entries, session_id
        self._entries[session_id] = _Entry(slot)

    def begin_prompt(self, session_id: str) -> None:
        """The core has the session's system prompt."""
        entry = self._entries[session_id]
        assert entry.phase is _Phase.PREPARING, entry.phase
        entry.phase = _Phase.PROMPTING

    def remove(self, session_id: str) -> None:
        """Forget a session and its backlog; results of a tick in flight are dropped."""
        del self._entries[session_id]

    def push(self, session_id: str, frame: UserFrame) -> int:
        """Put a user frame into a session's backlog; one of a session that is gone is ignored.

        Returns:
            How many older frames it pushed out: 0 or 1.
        """
        entry = self._entries.get(session_id)
        if entry is None:
            return 0
        entry.backlog.append(frame)
        if len(entry.backlog) <= self._max_backlog_frames:
            return 0
        entry.backlog.popleft()
        return 1

    def plan_tick(self) -> TickPlan:
        """Take at most one frame of every session that is due, or give the tick to prompts."""
        prompting = {e.slot: i for i, e in self._entries.items() if e.phase is _Phase.PROMPTING}
        due = {i: e for i, e in self._entries.items() if _may_step(e)}
        self._was_prompt_tick = bool(prompting) and not (due and self._was_prompt_tick)
        if self._was_prompt_tick:
            return TickPlan(frames={}, heard={}, owners=prompting)
        heard = {entry.slot: _take_frame(entry) for entry in due.values()}
        frames = {slot: None if frame is None else _samples(frame) for slot, frame in heard.items()}
        owners = {entry.slot: session_id for session_id, entry in due.items()}
        return TickPlan(frames=frames, heard=heard, owners=owners)

    def finish_tick(self, plan: TickPlan, result: TickResult) -> TickReport:
        """Give results to their owners; those of sessions that went meanwhile are dropped."""
        stepped = sorted(step.slot for step in result.steps)
        assert stepped == sorted(plan.frames), f"asked for {sorted(plan.frames)}, got {stepped}"
        steps = [
            SessionStep(owner, step, plan.heard[step.slot])
            for step in result.steps
            if (owner := self._present_owner(plan, step.slot))
        ]
        opened = [owner for slot in result.opened if (owner := self._present_owner(plan, slot))]
        for session_id in opened:
            self._entries[session_id].phase = _Phase.FIRST_STEP
        return TickReport(steps=steps, opened=opened)

    def _present_owner(self, plan: TickPlan, slot: int) -> str:
        owner = plan.owners[slot]
        return owner if owner in self._entries else ""


def _is_due(entry: _Entry) -> bool:
    return entry.phase is _Phase.PROMPTING or _may_step(entry)


def _may_step(entry: _Entry) -> bool:
    return entry.phase is _Phase.FIRST_STEP or bool(
        entry.phase is _Phase.STEPPING and entry.backlog
    )


def _take_frame(entry: _Entry) -> UserFrame | None:
    if entry.phase is _Phase.STEPPING:
        return entry.backlog.popleft()
    entry.phase = _Phase.STEPPING
    return None


def _samples(frame: UserFrame) -> NDArray[np.int16]:
    return np.frombuffer(frame.pcm, dtype="<i2").astype(np.int16)
