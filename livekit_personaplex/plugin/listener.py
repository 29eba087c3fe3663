"""The session's ear: runs the caller's clock on the event loop and tells when the caller speaks."""

import asyncio
from collections.abc import Callable

import numpy as np
from livekit import rtc
from numpy.typing import NDArray

from livekit_personaplex.loudness import frame_rms
from livekit_personaplex.plugin.user_audio import UserAudio
from livekit_personaplex.user_clock import UserClock
from livekit_personaplex.user_speech import UserSpeech

LATE_S = 0.02
"""A timer later than this was held up by a blocked loop, as the audio that came meanwhile was."""
GIVE_WAY_S = 0.01


class Listener:
    """Turns the audio that arrives, or does not, into one frame for the engine every 80 ms.

    Lives on one event loop; its methods must be called there. Nothing is sent before `start`.

    Attributes:
        clock: The caller's clock; None before `start`.
    """

    def __init__(
        self,
        *,
        send: Callable[[bytes], None],
        on_speech: Callable[[bool], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Make one that is not started.

        Args:
            send: Gives the engine a frame of 3,840 bytes.
            on_speech: Told True when the caller begins to speak, False when they stop.
            loop: The event loop, whose clock is the time.
        """
        self.clock: UserClock | None = None
        self._send = send
        self._on_speech = on_speech
        self._loop = loop
        self._audio = UserAudio()
        self._speech = UserSpeech()
        self._is_open = True
        self._timer: asyncio.TimerHandle | None = None
        self._gave_way = False

    def start(self, *, heard_s: float = 0.0) -> None:
        """Let the model's time begin now, or with audio that has just come and took `heard_s`."""
        self.clock = UserClock(now_s=self._loop.time() - heard_s)
        self._set_timer(self.clock.deadline_s)

    def push(self, frame: rtc.AudioFrame) -> None:
        """Take audio from LiveKit; before `start` it is forgotten."""
        samples = self._audio.convert(frame)
        if self._is_open and self.clock is not None and len(samples) > 0:
            for user_frame in self.clock.push(samples, now_s=self._loop.time()):
                self._hear(user_frame)

    def close(self) -> None:
        """Stop the clock; speech that is going on stops. Idempotent."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._speech.is_speaking:
            self._speech.is_speaking = False
            self._on_speech(False)

    def _hear(self, samples: NDArray[np.int16]) -> None:
        self._send(samples.tobytes())
        if self._is_open and self._speech.update(frame_rms(samples)):
            self._on_speech(self._speech.is_speaking)

    def _set_timer(self, when_s: float) -> None:
        self._timer = self._loop.call_at(when_s, self._on_timer, when_s)

    def _on_timer(self, due_s: float) -> None:
        assert self.clock is not None
        now_s = self._loop.time()
        if now_s >= self.clock.deadline_s:
            if now_s - due_s > LATE_S and not self._gave_way:
                # timers run before what waits in queues: let the caller's audio go first
                self._gave_way = True
                self._set_timer(now_s + GIVE_WAY_S)
                return
            self._hear(self.clock.fill(now_s=now_s))
        self._gave_way = False
        if self._is_open:  # sending may have ended the call
            self._set_timer(self.clock.deadline_s)
