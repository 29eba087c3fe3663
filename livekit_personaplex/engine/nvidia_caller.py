"""The caller of one chat by NVIDIA's protocol: Opus as it comes, frames for the engine in time.

NVIDIA's server steps when audio comes, so a muted microphone freezes its agent in mid-word. Here
the engine keeps the caller's time: a client that stops sending is silent.
"""

import asyncio
from collections.abc import Callable

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.engine.opus import OpusReader
from livekit_personaplex.errors import ProtocolError
from livekit_personaplex.user_clock import UserClock

MAX_AHEAD_S = 10.0
"""Audio that a client may send ahead of time: what it held back while its session opened."""
LATE_S = 0.02
"""A timer later than this was held up by a busy loop, as the audio that came meanwhile was."""
GIVE_WAY_S = 0.01


class NvidiaCaller:
    """Lives on the asyncio loop that made it."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """Make one whose time has not begun.

        Args:
            send: Takes each frame, 3,840 bytes of int16 PCM.
        """
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._stream = OpusReader()
        self._began_s = self._loop.time()
        self._num_samples = 0
        self._clock: UserClock | None = None
        self._has_begun = asyncio.Event()

    def begin(self) -> None:
        """Let the caller's time begin; audio that came before is forgotten."""
        self._clock = UserClock(now_s=self._loop.time())
        self._has_begun.set()

    def hear(self, piece: bytes) -> None:
        """Take the next bytes of the caller's stream.

        Raises:
            ProtocolError: They are no Opus, or come far faster than they can have been spoken.
        """
        samples = self._stream.read(piece)
        now_s = self._loop.time()
        self._num_samples += len(samples)
        if self._num_samples / SAMPLE_RATE_HZ > now_s - self._began_s + MAX_AHEAD_S:
            raise ProtocolError(
                f"this client is more than {MAX_AHEAD_S:g} s ahead of time; "
                "send audio as it is spoken"
            )
        if self._clock is not None and len(samples) > 0:
            for frame in self._clock.push(samples, now_s=now_s):
                self._send(frame.astype("<i2").tobytes())

    async def keep_time(self) -> None:
        """Be silent whenever nothing comes; never returns."""
        await self._has_begun.wait()
        assert self._clock is not None
        while True:
            due_s = self._clock.deadline_s
            await asyncio.sleep(due_s - self._loop.time())
            if self._loop.time() - due_s > LATE_S:
                await asyncio.sleep(GIVE_WAY_S)
            now_s = self._loop.time()
            if now_s >= self._clock.deadline_s:
                self._send(self._clock.fill(now_s=now_s).astype("<i2").tobytes())
