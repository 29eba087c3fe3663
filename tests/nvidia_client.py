"""A client of NVIDIA's protocol, without an opinion on anything."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import sphn
from aiohttp import WSMsgType

from livekit_personaplex.audio import FRAME_S, SAMPLE_RATE_HZ, pcm16_to_float
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.http import make_http_session

HANDSHAKE, AUDIO, TEXT, ERROR = 0, 1, 2, 5


@dataclass
class ChatClient:
    """One open chat; `listen` sorts what comes."""

    ws: aiohttp.ClientWebSocketResponse
    text: str = ""
    error: str = ""
    pcm: list[np.ndarray] = field(default_factory=list)
    reader: sphn.OpusStreamReader = field(
        default_factory=lambda: sphn.OpusStreamReader(SAMPLE_RATE_HZ)
    )
    writer: sphn.OpusStreamWriter = field(
        default_factory=lambda: sphn.OpusStreamWriter(SAMPLE_RATE_HZ)
    )

    async def wait_ready(self) -> None:
        assert await self.ws.receive_bytes(timeout=20.0) == bytes([HANDSHAKE])

    async def listen(self, num_frames: int = 10**9) -> None:
        """Take what comes until as many agent frames have, or until the end."""
        while len(self.pcm) < num_frames:
            message = await self.ws.receive(timeout=20.0)
            if message.type is not WSMsgType.BINARY:
                return
            kind, payload = message.data[0], message.data[1:]
            if kind == AUDIO:
                self.pcm.append(self.reader.append_bytes(payload))
            elif kind == TEXT:
                self.text += payload.decode()
            else:
                assert kind == ERROR, kind
                self.error = payload.decode()

    async def say(self, frames: Sequence[bytes]) -> None:
        """Speak in time."""
        for pcm in frames:
            await self.send_audio(pcm)
            await asyncio.sleep(FRAME_S)

    async def send_audio(self, pcm: bytes) -> None:
        samples = pcm16_to_float(np.frombuffer(pcm, dtype=np.int16))
        await self.ws.send_bytes(bytes([AUDIO]) + self.writer.append_pcm(samples))


@asynccontextmanager
async def chat(
    address: EngineAddress, query: dict[str, str], **options: object
) -> AsyncIterator[ChatClient]:
    """Open a chat; it is not ready yet. A refusal is aiohttp's `WSServerHandshakeError`."""
    async with make_http_session(address, None) as http:
        async with http.ws_connect(address.url("/api/chat"), params=query, **options) as ws:
            yield ChatClient(ws)
