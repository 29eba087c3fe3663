"""One client of NVIDIA's protocol: the WebSocket of ``/api/chat``, from its upgrade to its end.

Binary messages both ways, the first byte says what they are::

    0  handshake  engine -> client   the system prompt is done; empty
    1  audio      both ways          Opus, 24 kHz mono: the next bytes of one Ogg stream each way
    2  text       engine -> client   what a step adds to the agent's words, UTF-8
    5  error      engine -> client   why the conversation ends, UTF-8; then the end

Others are ignored, as NVIDIA's server does, which sends no 5. The session behind it is the same as
behind ``/v1/session``: slots, backlog, errors.

Source: NVIDIA/personaplex@3428dfd moshi/moshi/server.py handle_chat.
"""

import asyncio

import aiohttp
import numpy as np
from aiohttp import WSCloseCode, WSMsgType, web

from livekit_personaplex.engine.connection import FLUSH_TIMEOUT_S
from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.nvidia_caller import NvidiaCaller
from livekit_personaplex.engine.opus import OpusWriter
from livekit_personaplex.engine.outbox import Message
from livekit_personaplex.engine.session import Session
from livekit_personaplex.errors import EngineError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.wire.protocol import AgentFrame, ErrorCode, ErrorReport, Ready, UserFrame

CHAT_PATH = "/api/chat"
HANDSHAKE = b"\x00"
AUDIO = b"\x01"
TEXT = b"\x02"
ERROR = b"\x05"

PAGE_DEAF_S = 1.2
"""NVIDIA's page waits a second for its decoder, and throws away what it is sent until then: the
agent's first words, of an engine that opens a session in less. So its conversation begins later."""

_CLOSE_CODES: dict[ErrorCode, WSCloseCode] = {
    "protocol": WSCloseCode.PROTOCOL_ERROR,
    "slow": WSCloseCode.POLICY_VIOLATION,
    "closing": WSCloseCode.GOING_AWAY,
}
"""Never 1000 for an error: LiveKit's plugin takes that for a wish to connect again at once."""


class NvidiaChat:
    """Serves one session, whose prompt is with the core, over one prepared WebSocket."""

    def __init__(
        self,
        ws: web.WebSocketResponse,
        engine: Engine,
        session: Session,
        *,
        is_page: bool = False,
    ) -> None:
        """Take over both; `run` serves them.

        Args:
            ws: Prepared just now.
            engine: Whose session it is.
            session: The one behind it.
            is_page: The client runs in a browser, and is deaf at first.
        """
        self._ws = ws
        self._engine = engine
        self._session = session
        self._caller = NvidiaCaller(self._push)
        self._stream = OpusWriter()
        self._num_frames = 0
        self._loop = asyncio.get_running_loop()
        self._hears_from_s = self._loop.time() + (PAGE_DEAF_S if is_page else 0.0)
        self._close_code = WSCloseCode.OK

    async def run(self) -> WSCloseCode:
        """Serve the client until either side ends; returns what to close the WebSocket with."""
        writer = asyncio.create_task(self._write(), name="chat writer")
        others = [
            asyncio.create_task(self._read(), name="chat reader"),
            asyncio.create_task(self._caller.keep_time(), name="chat clock"),
        ]
        try:
            await self._session.outbox.wait_ended()
            self._engine.close(self._session)
            await asyncio.wait({writer}, timeout=FLUSH_TIMEOUT_S)
        finally:
            for task in (writer, *others):
                task.cancel()
            await asyncio.gather(writer, *others, return_exceptions=True)
        return self._close_code

    async def _read(self) -> None:
        try:
            async for message in self._ws:
                if message.type is WSMsgType.BINARY and message.data[:1] == AUDIO:
                    self._caller.hear(message.data[1:])
        except PersonaPlexError as error:
            self._session.fail(error)
        except Exception:
            self._fail_unexpectedly()
        finally:
            self._session.outbox.abandon()

    def _push(self, pcm: bytes) -> None:
        self._engine.push(self._session, UserFrame(self._num_frames, pcm))
        self._num_frames += 1

    async def _write(self) -> None:
        try:
            async for message in self._session.outbox.messages():
                await self._tell(message)
        except (ConnectionError, aiohttp.ClientError):
            self._session.outbox.abandon()  # the client has gone
        except Exception:
            self._fail_unexpectedly()

    async def _tell(self, message: Message) -> None:
        match message:
            case AgentFrame():
                pcm = np.frombuffer(message.pcm, dtype="<i2").astype(np.int16)
                await self._ws.send_bytes(AUDIO + self._stream.write(pcm))
                if message.text:
                    await self._ws.send_bytes(TEXT + message.text.encode())
            case Ready():
                await asyncio.sleep(self._hears_from_s - self._loop.time())
                await self._ws.send_bytes(HANDSHAKE)
                self._caller.begin()
            case ErrorReport():
                self._close_code = _CLOSE_CODES.get(message.code, WSCloseCode.INTERNAL_ERROR)
                await self._ws.send_bytes(ERROR + message.message.encode())

    def _fail_unexpectedly(self) -> None:
        logger.exception("a chat failed", extra={"session": self._session.session_id})
        self._session.fail(EngineError("this session failed inside the engine"))
