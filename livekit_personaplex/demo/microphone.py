"""A microphone that never stops: recorded speech when there is some, silence otherwise."""

import asyncio
import contextlib
import time

import numpy as np
from livekit import rtc
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.recording import Recording

_PIECE_SAMPLES = SAMPLE_RATE_HZ // 50  # 20 ms, as a browser sends them
_SOURCE_QUEUE_MS = 40


class Microphone:
    """An endless 24 kHz audio track: what was asked to be said, silence otherwise."""

    def __init__(self) -> None:
        self._source = rtc.AudioSource(SAMPLE_RATE_HZ, 1, queue_size_ms=_SOURCE_QUEUE_MS)
        self.track = rtc.LocalAudioTrack.create_audio_track("microphone", self._source)
        self.sent = Recording()
        self._pending = np.zeros(0, dtype=np.int16)
        self._spoken = asyncio.Event()
        self._spoken.set()
        self._pump = asyncio.create_task(self._run(), name="microphone")

    def say(self, samples: NDArray[np.int16]) -> None:
        """Append speech to what is being said; returns at once."""
        self._pending = np.concatenate([self._pending, samples])
        self._spoken.clear()

    def hush(self) -> None:
        """Leave unsaid what has not been said yet."""
        self._pending = self._pending[:0]

    async def said(self) -> None:
        """Wait until everything asked for has been said."""
        await self._spoken.wait()

    async def aclose(self) -> None:
        """Stop."""
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump
        await self._source.aclose()

    async def _run(self) -> None:
        # A frame is accepted when the source's queue has room for it: that is the pace.
        while True:
            piece = np.zeros(_PIECE_SAMPLES, dtype=np.int16)
            taken = self._pending[:_PIECE_SAMPLES]
            piece[: len(taken)] = taken
            self._pending = self._pending[_PIECE_SAMPLES:]
            if not len(self._pending):
                self._spoken.set()
            # The piece goes out when what is queued before it has: that is when it is spoken.
            starts_s = time.monotonic() + self._source.queued_duration
            self.sent.append(piece, starts_s + _PIECE_SAMPLES / SAMPLE_RATE_HZ)
            frame = rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, _PIECE_SAMPLES)
            await self._source.capture_frame(frame)
