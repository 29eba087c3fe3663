"""What the watchdogs of a session tell, and when, on a clock that the test turns."""

import pytest

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.first_word import FirstWord
from livekit_personaplex.plugin.watchdogs import (
    AgentSilentEvent,
    AgentSpeakingEvent,
    CallerUnheardEvent,
    Watch,
    WatchdogEvent,
    Watchdogs,
)

FRAME_S = 0.08
LIMITS = Watchdogs(agent_silent_s=2.0, agent_speaking_s=3.0, caller_unheard_s=1.0)


class Call:
    """A watch and its clock: `run` lets frames pass."""

    def __init__(self, limits: Watchdogs = LIMITS) -> None:
        self.now_s = 100.0
        self.told: list[WatchdogEvent] = []
        self.watch = Watch(limits, tell=self.told.append)

    def run(
        self,
        seconds: float,
        *,
        agent: bool = False,
        pushed: bool | None = True,
        heard: bool = True,
        armed: bool = True,
    ) -> list[WatchdogEvent]:
        """Let time pass; `pushed` None: LiveKit delivers nothing. Gives what was told meanwhile."""
        before = len(self.told)
        for _ in range(round(seconds / FRAME_S)):
            self.now_s += FRAME_S
            if pushed is not None:
                self.watch.note_pushed(has_sound=pushed, is_armed=armed, now_s=self.now_s)
            if armed:
                self.watch.note_heard(has_sound=heard, now_s=self.now_s)
                self.watch.note_agent(is_speech=agent, now_s=self.now_s)
        return self.told[before:]


def kinds(events: list[WatchdogEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_silent_agent_is_told_once_and_again_after_it_has_spoken() -> None:
    call = Call()
    assert call.run(1.9) == []
    (event,) = call.run(5.0)
    assert event == AgentSilentEvent(pytest.approx(2.0, abs=2 * FRAME_S))
    assert call.run(1.0, agent=True) == []
    assert call.run(1.9) == []
    assert kinds(call.run(0.3)) == ["AgentSilentEvent"]


def test_an_agent_that_does_not_stop_is_told_once() -> None:
    call = Call()
    call.run(0.5)
    assert call.run(2.9, agent=True) == []
    (event,) = call.run(6.0, agent=True)
    assert event == AgentSpeakingEvent(pytest.approx(3.0, abs=2 * FRAME_S))


@pytest.mark.parametrize(
    ("pushed", "reason"), [(None, "no_audio"), (False, "silence"), (True, "lost")]
)
def test_a_caller_who_is_not_heard_is_told_with_the_reason(
    pushed: bool | None, reason: str
) -> None:
    call = Call()
    assert call.run(1.0) == []
    (event,) = [
        event
        for event in call.run(1.7, agent=True, pushed=pushed, heard=False)
        if isinstance(event, CallerUnheardEvent)
    ]
    assert event.reason == reason
    assert event.unheard_s == pytest.approx(1.0, abs=2 * FRAME_S)
    call.run(0.1, agent=True)
    assert kinds(call.run(1.3, agent=True, pushed=pushed, heard=False)) == ["CallerUnheardEvent"]


def test_a_model_that_nobody_arms_is_told() -> None:
    call = Call()
    assert call.run(5.0, pushed=False, armed=False) == []
    (event,) = call.run(2.0, armed=False)
    assert isinstance(event, CallerUnheardEvent) and event.reason == "not_armed"
    assert call.run(0.5) == []


def test_a_watchdog_that_is_off_tells_nothing() -> None:
    off = Watchdogs(agent_silent_s=None, agent_speaking_s=None, caller_unheard_s=None)
    call = Call(off)
    assert call.run(100.0, pushed=False, heard=False) == []
    assert call.run(100.0, agent=True) == []
    assert call.run(100.0, armed=False) == []


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "5", True])
def test_a_limit_that_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="agent_silent_s must be a number above 0 or None"):
        Watchdogs(agent_silent_s=value)  # type: ignore[arg-type]


class Waiting:
    """A first word that is awaited."""

    def __init__(self, *, has_greeting: bool) -> None:
        self.frame = 0
        self.let_go_at: list[int] = []
        self.first_word = FirstWord(
            lambda: self.let_go_at.append(self.frame), has_greeting=has_greeting, timeout_s=4.0
        )

    def hear(self, count: int) -> None:
        for _ in range(count):
            self.frame += 1
            self.first_word.hear()


def test_the_model_is_let_go_as_the_caller_begins() -> None:
    call = Waiting(has_greeting=False)
    call.hear(10)
    call.first_word.tell_speech(True)
    call.first_word.tell_speech(False)
    call.hear(100)
    assert call.let_go_at == [10]


def test_a_greeting_waits_until_the_caller_stops_however_long_that_is() -> None:
    call = Waiting(has_greeting=True)
    call.hear(10)
    call.first_word.tell_speech(True)
    call.hear(100)
    call.first_word.tell_speech(False)
    call.first_word.tell_speech(True)
    assert call.let_go_at == [110]


@pytest.mark.parametrize("has_greeting", [False, True])
def test_a_silent_caller_is_not_waited_for_for_ever(has_greeting: bool) -> None:
    call = Waiting(has_greeting=has_greeting)
    call.hear(200)
    assert call.let_go_at == [50]
