"""Watching a call: an agent that does not speak, or does not stop, a caller whom it cannot hear.

A watchdog only tells; what follows is the application's business. Each tells once, and again only
after what it waits for has been there meanwhile. Pure: time is handed in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from livekit_personaplex.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Watchdogs:
    """After how many seconds each watchdog tells; None: never.

    Attributes:
        agent_silent_s: The agent has not spoken.
        agent_speaking_s: The agent has not stopped.
        caller_unheard_s: No sound of the caller has reached the model.
    """

    agent_silent_s: float | None = 20.0
    agent_speaking_s: float | None = 60.0
    caller_unheard_s: float | None = 15.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if value is not None and not _is_positive(value):
                raise ConfigError(f"{field.name} must be a number above 0 or None, got {value!r}")


@dataclass(frozen=True, slots=True)
class AgentSilentEvent:
    """The agent has not spoken for `silent_s`: ``personaplex_agent_silent``."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class AgentSpeakingEvent:
    """The agent has not stopped for `speaking_s`: ``personaplex_agent_speaking``."""

    speaking_s: float


UnheardReason = Literal["no_audio", "silence", "lost", "not_armed"]


@dataclass(frozen=True, slots=True)
class CallerUnheardEvent:
    """No sound of the caller has reached the model: ``personaplex_caller_unheard``.

    Attributes:
        unheard_s: For how long.
        reason: ``no_audio``: LiveKit delivers none, as when nobody has published a microphone, or
            another participant is linked. ``silence``: it delivers digital silence, as from a muted
            microphone. ``lost``: it delivers sound, which comes too late to be heard.
            ``not_armed``: it delivers sound, and nobody has armed the model.
    """

    unheard_s: float
    reason: UnheardReason


WatchdogEvent = AgentSilentEvent | AgentSpeakingEvent | CallerUnheardEvent


class Watch:
    """The watchdogs of one session, on its event loop. All times are of one clock, in seconds."""

    def __init__(self, limits: Watchdogs, *, tell: Callable[[WatchdogEvent], None]) -> None:
        """Watch nothing yet; time begins with the first frame that the model hears.

        Args:
            limits: Of each watchdog.
            tell: Takes the events.
        """
        self._tell = tell
        self._silent = _Stretch(limits.agent_silent_s)
        self._speaking = _Stretch(limits.agent_speaking_s)
        self._unheard = _Stretch(limits.caller_unheard_s)
        self._unarmed = _Stretch(limits.caller_unheard_s)
        self._pushed_s = self._sound_pushed_s = -math.inf

    def note_pushed(self, *, has_sound: bool, is_armed: bool, now_s: float) -> None:
        """LiveKit has delivered audio of the caller."""
        self._pushed_s = now_s
        if has_sound:
            self._sound_pushed_s = now_s
        if is_armed:
            self._unarmed.end()
        elif has_sound and (unheard_s := self._unarmed.go_on(now_s)) is not None:
            self._tell(CallerUnheardEvent(unheard_s, "not_armed"))

    def note_heard(self, *, has_sound: bool, now_s: float) -> None:
        """The model was given a frame; the clock of this watch."""
        if has_sound:
            self._unheard.end()
        if (unheard_s := self._unheard.go_on(now_s)) is not None:
            # what came just before belongs to the last sound that was heard
            self._tell(CallerUnheardEvent(unheard_s, self._reason(now_s - unheard_s / 2)))

    def note_agent(self, *, is_speech: bool, now_s: float) -> None:
        """The agent has spoken a frame, or been silent for one."""
        going_on, other = (
            (self._speaking, self._silent) if is_speech else (self._silent, self._speaking)
        )
        other.end()
        if (lasted_s := going_on.go_on(now_s)) is not None:
            event = AgentSpeakingEvent(lasted_s) if is_speech else AgentSilentEvent(lasted_s)
            self._tell(event)

    def _reason(self, since_s: float) -> UnheardReason:
        if self._pushed_s < since_s:
            return "no_audio"
        return "silence" if self._sound_pushed_s < since_s else "lost"


class _Stretch:
    """Something that lasts, and is told once when it has lasted too long."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._began_s: float | None = None
        self._is_told = False

    def go_on(self, now_s: float) -> float | None:
        """It begins, or goes on; gives how long it has lasted when that is to be told."""
        if self._began_s is None:
            self._began_s = now_s
        lasted_s = now_s - self._began_s
        if self._limit_s is None or self._is_told or lasted_s < self._limit_s:
            return None
        self._is_told = True
        return round(lasted_s, 3)

    def end(self) -> None:
        self._began_s = None
        self._is_told = False


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value > 0
