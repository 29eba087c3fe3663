"""One call with a recorded question: ask, listen, and keep what was said."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.demo.caller import Caller, Words
from livekit_personaplex.demo.display import Display
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import Recording

_JOIN_TIMEOUT_S = 30.0
_GREETING_S = 4.0
_QUIET_S = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A recorded question: ``[N] int16`` samples at 24 kHz, and its words."""

    samples: NDArray[np.int16]
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOutcome:
    """What one call left.

    Attributes:
        sent: What left the caller's microphone.
        heard: What the caller heard.
        words: Transcripts, in order of arrival.
        answered_s: From the caller's joining to the agent's track.
    """

    sent: Recording
    heard: Recording
    words: tuple[Words, ...]
    answered_s: float


async def ask(
    server: LiveKitCredentials,
    *,
    room: str,
    dispatch: dict[str, object],
    question: Question,
    answer_s: float,
    display: Display,
) -> CallOutcome:
    """Join a new room, let the agent greet, ask, listen, and leave.

    Args:
        server: Where, and the keys to join with.
        room: Name of the room; joining makes it, and that calls the agent.
        dispatch: Voice, persona and the like, for the agent.
        question: What to ask, once the agent is quiet or has had a few seconds.
        answer_s: Longest time to listen; less when the agent answers and is quiet again.
        display: Where the words go.

    Raises:
        PersonaPlexError: No agent came.
    """
    joined_s = time.monotonic()
    caller = await Caller.join(server, room=room, dispatch=dispatch, departure_timeout_s=1)
    try:
        microphone = await caller.publish()
        await caller.until(
            lambda: bool(caller.heard.pieces), what="an agent", timeout_s=_JOIN_TIMEOUT_S
        )
        answered_s = time.monotonic() - joined_s
        display.start_clock()
        showing = asyncio.create_task(_show_words(caller, display), name="show words")
        await _listen(caller, longest_s=_GREETING_S)
        display.say("caller", question.words)
        microphone.say(question.samples)
        await microphone.said()
        await _listen(caller, longest_s=answer_s)
        showing.cancel()
    finally:
        await caller.leave()
    return CallOutcome(
        sent=microphone.sent,
        heard=caller.heard,
        words=tuple(caller.words),
        answered_s=answered_s,
    )


async def _listen(caller: Caller, *, longest_s: float) -> None:
    """Wait until the agent has spoken and has then been quiet for a while."""
    begin_s = time.monotonic()
    quiet_since_s: float | None = None
    while time.monotonic() < begin_s + longest_s:
        spoke = any(at_s >= begin_s and state == "speaking" for at_s, state in caller.agent_states)
        if caller.agent_state == "speaking" or not spoke:
            quiet_since_s = None
        elif quiet_since_s is None:
            quiet_since_s = time.monotonic()
        elif time.monotonic() - quiet_since_s >= _QUIET_S:
            return
        await asyncio.sleep(0.1)


async def _show_words(caller: Caller, display: Display) -> None:
    shown = 0
    while True:
        for words in caller.words[shown:]:
            if words.identity == caller.identity:
                continue
            if words.is_final:
                display.end_turn()
            else:
                display.say("agent", words.text)
        shown = len(caller.words)
        await asyncio.sleep(0.1)
