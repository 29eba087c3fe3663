"""The fastest possible "agent": a participant that sends back every 10 ms it hears.

What it adds to a call is what any agent in this room pays: capture, Opus, network, jitter buffers.
"""

import asyncio
import contextlib
from typing import Any

from livekit import rtc

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.caller import make_token
from livekit_personaplex.demo.livekit_server import LiveKitCredentials

_SOURCE_QUEUE_MS = 50


class EchoParticipant:
    """Joins a room and copies the first audio track it is given into a track of its own."""

    def __init__(self) -> None:
        self._room = rtc.Room()
        self._source = rtc.AudioSource(SAMPLE_RATE_HZ, 1, queue_size_ms=_SOURCE_QUEUE_MS)
        self._copying: asyncio.Task[None] | None = None
        self._room.on("track_subscribed", self._on_track_subscribed)

    @classmethod
    async def join(cls, server: LiveKitCredentials, *, room: str) -> "EchoParticipant":
        echo = cls()
        token = make_token(server, room=room, identity="echo", dispatch=None)
        await echo._room.connect(server.url, token)
        track = rtc.LocalAudioTrack.create_audio_track("echo", echo._source)
        await echo._room.local_participant.publish_track(track)
        return echo

    async def leave(self) -> None:
        if self._copying is not None:
            self._copying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._copying
        await self._room.disconnect()
        await self._source.aclose()

    def _on_track_subscribed(self, track: rtc.Track, *_: Any) -> None:
        if isinstance(track, rtc.RemoteAudioTrack):
            self._copying = asyncio.create_task(self._copy(track))

    async def _copy(self, track: rtc.RemoteAudioTrack) -> None:
        stream = rtc.AudioStream.from_track(
            track=track, sample_rate=SAMPLE_RATE_HZ, num_channels=1, frame_size_ms=10
        )
        try:
            async for event in stream:
                await self._source.capture_frame(event.frame)
        finally:
            await stream.aclose()
