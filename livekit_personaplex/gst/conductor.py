"""Where the threads of a conversation meet: the caller, the agent, the engine and the clock.

The caller's streaming thread puts audio, the engine's connection delivers the agent's frames, the
agent's streaming thread takes what is to be played, and a thread of its own waits for the next step
of the `Timeline` and makes it. So neither a sink that holds its thread until a buffer's time has
come nor a source that stalls keeps the caller's frames from the engine. No GStreamer: running time
comes from a function.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.errors import EngineError, PersonaPlexError
from livekit_personaplex.gst.timeline import MAX_UNPUSHED_FRAMES, NS_PER_S, Pace, Played, Timeline
from livekit_personaplex.log import logger
from livekit_personaplex.wire.protocol import AgentFrame

MAX_UNHEARD_SAMPLES = SAMPLE_RATE_HZ
"""Audio of the caller that waits for its frame; more has to wait upstream."""
MAX_AHEAD_FRAMES = 2
"""Frames that wait for the agent's thread where the engine sets the pace; then it has to wait."""


class End(Enum):
    """All that the caller's audio asked for has been played."""

    END = "end"


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened so far.

    Attributes:
        played_frames: Frames made, fillers included.
        filler_frames: Silence in place of an answer that was not there in time.
        dropped_frames: Frames of the agent, or made, that came too late to be played.
        skipped_frames: Frames of time that this process was stuck for.
        late_samples: Samples of the caller that came too late to be heard.
    """

    played_frames: int
    filler_frames: int
    dropped_frames: int
    skipped_frames: int
    late_samples: int


class Conductor:
    """Steps one conversation. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        send: Callable[[bytes], None],
        running_ns: Callable[[], int | None],
        on_end: Callable[[PersonaPlexError], None],
    ) -> None:
        """Start its thread; `close` ends it.

        Args:
            send: Gives the engine the caller's next frame of 3,840 bytes; must not block.
            running_ns: The pipeline's running time; None without a clock.
            on_end: Told when this fails, in its own thread.
        """
        self._send = send
        self._on_end = on_end
        self._running_ns = running_ns
        self._changed = threading.Condition()
        self._timeline = Timeline()
        self._played: deque[Played | End] = deque()
        self._num_dropped = 0
        self._has_told_end = False
        self._is_halted = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="personaplex conductor", daemon=True)
        self._thread.start()

    @property
    def pace(self) -> Pace:
        """Who says when a step is due; unknown before `set_pace`."""
        return self._timeline.pace

    def set_pace(self, pace: Pace, *, source_latency_ns: int = 0) -> None:
        """Say who sets the pace, and how late a live source's audio comes."""
        with self._changed:
            self._timeline.pace = pace
            self._timeline.source_latency_ns = source_latency_ns
            self._changed.notify_all()

    def set_playing(self, is_playing: bool) -> None:
        """Let the clock count, or stop it."""
        with self._changed:
            self._timeline.is_playing = is_playing
            self._changed.notify_all()

    def put(self, position: int | None, pcm: bytes, *, is_discont: bool = False) -> bool:
        """Take the caller's audio; blocks while too much of it waits.

        Args:
            position: Its running time in samples; None when it simply goes on.
            pcm: int16 samples.
            is_discont: It does not follow what came before.

        Returns:
            False: it was not taken; the conversation is halted, or its audio has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_deaf or not self._is_full)
            if self._is_deaf:
                return False
            self._timeline.hear(position, pcm, is_discont=is_discont)
            self._changed.notify_all()
        return True

    def put_silence(self, position: int, num_samples: int) -> bool:
        """Hear nothing from `position` on; returns as `put` does."""
        with self._changed:
            if self._is_deaf:
                return False
            self._timeline.begin(position)
            self._timeline.user.put_silence(position, num_samples)
            self._changed.notify_all()
        return True

    def end_audio(self) -> None:
        """Say that the caller's audio has ended; what it asked for is still played."""
        with self._changed:
            self._timeline.has_ended = True
            self._changed.notify_all()

    def deliver(self, frame: AgentFrame) -> None:
        """Take the agent's next frame."""
        with self._changed:
            self._timeline.agent.put(frame)
            self._changed.notify_all()

    def take(self) -> Played | End | None:
        """Wait for what is to be played next; None when the conversation is halted."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_halted or bool(self._played))
            if self._is_halted:
                return None
            self._changed.notify_all()
            return self._played.popleft()

    def halt(self) -> None:
        """Let every thread go that waits here, and let time stand still."""
        with self._changed:
            self._is_halted = True
            self._changed.notify_all()

    def restart(self) -> None:
        """Go on after `halt` with whatever audio comes next; what waited is forgotten.

        The engine's conversation is the same: its next frame is the next one played.
        """
        with self._changed:
            self._timeline.restart()
            self._played.clear()
            self._has_told_end = False
            self._is_halted = False
            self._changed.notify_all()

    def close(self) -> None:
        """Halt for good and end the thread."""
        with self._changed:
            self._is_halted = self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def counts(self) -> Counts:
        """Count what happened so far."""
        with self._changed:
            timeline = self._timeline
            return Counts(
                played_frames=timeline.num_played,
                filler_frames=timeline.num_fillers,
                dropped_frames=timeline.agent.num_dropped + self._num_dropped,
                skipped_frames=timeline.num_skipped,
                late_samples=timeline.user.num_late_samples,
            )

    @property
    def _is_deaf(self) -> bool:
        return self._is_halted or self._timeline.has_ended

    @property
    def _is_full(self) -> bool:
        return self._timeline.user.num_waiting_samples >= MAX_UNHEARD_SAMPLES

    def _run(self) -> None:
        try:
            self._step_till_closed()
        except Exception:
            logger.exception("the conductor of a conversation failed")
            self._on_end(EngineError("this conversation failed inside the element; see its log"))

    def _step_till_closed(self) -> None:
        with self._changed:
            while not self._is_closed:
                wait_s = self._due_in_s()
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                else:
                    self._step()
                    self._changed.notify_all()

    def _due_in_s(self) -> float | None:
        if self._is_halted or self._has_told_end:
            return None
        if self._timeline.is_exhausted:
            return 0.0
        if self._timeline.pace is Pace.ENGINE and len(self._played) >= MAX_AHEAD_FRAMES:
            return None
        due_ns = self._timeline.due_in_ns(self._running_ns())
        return None if due_ns is None else due_ns / NS_PER_S

    def _step(self) -> None:
        if self._timeline.is_exhausted:
            self._has_told_end = True
            self._played.append(End.END)
            return
        played, heard = self._timeline.step(self._running_ns())
        self._send(heard)
        self._played.append(played)
        if len(self._played) > MAX_UNPUSHED_FRAMES:
            self._played.popleft()
            self._num_dropped += 1
