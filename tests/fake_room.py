"""A caller's ears and mouth for ``AgentSession``: no room, no server."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
from livekit import rtc
from livekit.agents.voice import io

PIECE_S = 0.02


class Microphone(io.AudioInput):
    """Gives 20 ms of audio every 20 ms while it is on, nothing while it is off."""

    def __init__(self, *, rate_hz: int = 24_000) -> None:
        super().__init__(label="Microphone")
        self.level = 0
        self._is_on = asyncio.Event()
        self._is_on.set()
        self._rate_hz = rate_hz

    def turn(self, *, on: bool) -> None:
        if on:
            self._is_on.set()
        else:
            self._is_on.clear()

    def __aiter__(self) -> AsyncIterator[rtc.AudioFrame]:
        return self

    async def __anext__(self) -> rtc.AudioFrame:
        await asyncio.sleep(PIECE_S)
        await self._is_on.wait()
        num_samples = round(self._rate_hz * PIECE_S)
        data = np.full(num_samples, self.level, dtype=np.int16).tobytes()
        return rtc.AudioFrame(data, self._rate_hz, 1, num_samples)


@dataclass
class Heard:
    """One utterance as the loudspeaker played it."""

    began_s: float
    duration_s: float = 0.0
    gaps_s: float = 0.0


class Loudspeaker(io.AudioOutput):
    """Plays in real time, and notes when it had nothing to play in the middle of an utterance."""

    def __init__(self) -> None:
        super().__init__(
            label="Loudspeaker",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=24_000,
        )
        self.utterances: list[Heard] = []
        self._plays_until_s = 0.0
        self._is_open = False

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        now_s = asyncio.get_running_loop().time()
        if not self._is_open:
            self._is_open = True
            self._plays_until_s = now_s
            self.utterances.append(Heard(began_s=now_s))
            self.on_playback_started(created_at=time.time())
        self.utterances[-1].gaps_s += max(0.0, now_s - self._plays_until_s)
        self._plays_until_s = max(self._plays_until_s, now_s) + frame.duration
        self.utterances[-1].duration_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._is_open:
            self._is_open = False
            loop = asyncio.get_running_loop()
            loop.call_at(self._plays_until_s, self._finish, self.utterances[-1].duration_s)

    def clear_buffer(self) -> None:
        if self._is_open:
            self._is_open = False
            self.on_playback_finished(playback_position=0.0, interrupted=True)

    def _finish(self, duration_s: float) -> None:
        self.on_playback_finished(playback_position=duration_s, interrupted=False)


class Captions(io.TextOutput):
    """Keeps the agent's words as a caller reads them, one text per utterance."""

    def __init__(self) -> None:
        super().__init__(label="Captions", next_in_chain=None)
        self.texts: list[str] = []
        self._is_open = False

    async def capture_text(self, text: str) -> None:
        if not self._is_open:
            self._is_open = True
            self.texts.append("")
        self.texts[-1] += text

    def flush(self) -> None:
        self._is_open = False
