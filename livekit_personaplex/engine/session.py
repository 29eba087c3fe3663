"""One conversation as the engine's asyncio loop sees it: its client, its slot, its counters."""

import asyncio
import secrets
import time
from collections import deque
from dataclasses import replace

from livekit_personaplex.engine.core_protocol import TextDecoder
from livekit_personaplex.engine.outbox import Outbox
from livekit_personaplex.engine.recorder import Recording
from livekit_personaplex.engine.scheduler import SessionStep
from livekit_personaplex.engine.steering import Say, Steered, StopSaying
from livekit_personaplex.errors import PersonaPlexError, ProtocolError
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.wire.error_reports import report_from_error
from livekit_personaplex.wire.protocol import (
    AgentFrame,
    Closed,
    ErrorReport,
    OpenRequest,
    Ready,
    Refused,
    Reply,
    Said,
    UserFrame,
)

MAX_UNREAD_MESSAGES = 64
"""Agent frames that wait for a slow reader, beside what sockets hold: 5 s."""


class Session:
    """One session that has a slot; only the asyncio loop touches it.

    Attributes:
        session_id: Name that the client is told.
        slot: Its slot.
        request: What the client asked for.
        sampling: The request's, with a seed.
        outbox: Messages to its client.
        freed: Set when its slot is free again.
        is_in_core: The core was given its prompt, so the core's thread frees its slot.
        is_closing: It gives its slot back; nothing more comes of it.
        is_ready: Its system prompt is done.
        has_failed: Its client is told an error as its last message.
        num_frames: Agent frames made.
        num_dropped: User frames that its full backlog pushed out.
        prompt_steps: Length of its system prompt; 0 until that is laid out.
    """

    def __init__(
        self,
        session_id: str,
        slot: int,
        request: OpenRequest,
        *,
        decoder: TextDecoder,
        recording: Recording | None,
    ) -> None:
        """Begin an opening session; draws a seed when the request has none."""
        self.session_id = session_id
        self.slot = slot
        self.request = request
        self.sampling = _with_seed(request.sampling)
        self.outbox = Outbox(MAX_UNREAD_MESSAGES)
        self.freed = asyncio.Event()
        self.is_in_core = False
        self.is_closing = False
        self.is_ready = False
        self.has_failed = False
        self.num_frames = 0
        self.num_dropped = 0
        self.recording = recording
        self._decoder = decoder
        self.prompt_steps = 0
        self._began_s = time.monotonic()
        self._next_number = 0
        self._sayings: deque[tuple[int, int]] = deque()

    @property
    def age_s(self) -> float:
        """Seconds since it was asked for."""
        return time.monotonic() - self._began_s

    def check_number(self, frame: UserFrame) -> None:
        """Raises `ProtocolError` when the client's numbers do not grow."""
        if frame.number < self._next_number:
            raise ProtocolError(
                f"user frames must count up: expected {self._next_number} or more, "
                f"got {frame.number}"
            )
        self._next_number = frame.number + 1

    def enter_core(self, prompt_steps: int) -> None:
        """The core was given its prompt, `prompt_steps` long."""
        self.is_in_core = True
        self.prompt_steps = prompt_steps

    def tell_ready(self) -> None:
        """The system prompt is done: tell the client."""
        self.is_ready = True
        assert self.sampling.seed is not None
        ready = Ready(
            session=self.session_id,
            seed=self.sampling.seed,
            prompt_steps=self.prompt_steps,
            open_ms=round(self.age_s * 1e3, 3),
        )
        self.outbox.put(ready)

    def deliver(self, step: SessionStep) -> None:
        """Send one step's frame; a client that does not read is told the end instead."""
        tokens = step.step.tokens
        frame = AgentFrame(
            step=self.num_frames,
            pcm=step.step.pcm.astype("<i2").tobytes(),
            text=self._decoder.push(int(tokens[0])),
            tokens=tuple(tokens.tolist()),
            heard=None if step.heard is None else step.heard.number,
        )
        self.num_frames += 1
        if self.recording is not None:
            self.recording.add(step)
        if not self.outbox.put(frame):
            self._end_with(_TOO_SLOW)
        while self._sayings and self._sayings[0][1] <= step.step.num_said:
            self._tell(Said(self._sayings.popleft()[0], complete=True))

    def note_steered(self, event: Steered) -> None:
        """Follow what was asked of the conversation, to tell the client and for its recording."""
        if self.recording is not None:
            self.recording.note(event.command, step=self.num_frames)
        if isinstance(event.command, Say) and event.command.number is not None:
            self._sayings.append((event.command.number, event.end))
        elif isinstance(event.command, StopSaying):
            while self._sayings:
                self._tell(Said(self._sayings.popleft()[0], complete=False))

    def refuse(self, number: int, error: PersonaPlexError) -> None:
        """Tell the client that words cannot be said; the conversation goes on."""
        self._tell(Refused(number, str(error)))

    def fail(self, error: PersonaPlexError) -> None:
        """Tell the client why the session ends, as its last message."""
        self._end_with(report_from_error(error))

    def tell_closed(self) -> None:
        """Answer the client's goodbye, as the last message."""
        self.outbox.end(Closed(frames=self.num_frames, dropped=self.num_dropped))

    def _tell(self, reply: Reply) -> None:
        if not self.outbox.put(reply):
            self._end_with(_TOO_SLOW)

    def _end_with(self, report: ErrorReport) -> None:
        if not self.outbox.has_ended:
            self.has_failed = True
            self.outbox.end(report)


_TOO_SLOW = ErrorReport(
    "slow", f"this client left {MAX_UNREAD_MESSAGES} agent frames unread; read them as they come"
)


def _with_seed(sampling: Sampling) -> Sampling:
    if sampling.seed is not None:
        return sampling
    return replace(sampling, seed=secrets.randbelow(MAX_SEED + 1))
