"""One client's WebSocket in the engine, from its first message to its end.

Whatever a client does costs its own connection and nothing else: a message that breaks the
protocol, a reader that does not read, a peer that vanishes.
"""

import asyncio

import aiohttp
from aiohttp import WSMsgType, web

from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.session import Session
from livekit_personaplex.errors import (
    CapacityError,
    ConfigError,
    EngineError,
    PersonaPlexError,
    ProtocolError,
)
from livekit_personaplex.log import logger
from livekit_personaplex.wire.error_reports import report_from_error
from livekit_personaplex.wire.frames import pack_agent_frame, unpack_user_frame
from livekit_personaplex.wire.protocol import (
    OPEN_TIMEOUT_S,
    AgentFrame,
    CloseRequest,
    OpenRequest,
    pack_reply,
    unpack_request,
)

FLUSH_TIMEOUT_S = 1.0
"""How long a client may take to read its last messages."""


class Connection:
    """Serves one conversation over one prepared WebSocket."""

    def __init__(self, ws: web.WebSocketResponse, engine: Engine) -> None:
        """Take over a prepared WebSocket; `run` serves it."""
        self._ws = ws
        self._engine = engine

    async def run(self) -> None:
        """Serve the client until either side ends; the slot is given back whatever happens."""
        try:
            request = await self._read_open()
            session = None if request is None else self._engine.reserve(request)
        except PersonaPlexError as error:
            if isinstance(error, (CapacityError, ConfigError)):
                self._engine.counters.refused += 1
            await self._refuse(error)
            return
        if session is None:
            return
        try:
            await self._converse(session)
        finally:
            self._engine.close(session)

    async def _read_open(self) -> OpenRequest | None:
        """Read the first message; None when the client went without any."""
        try:
            message = await asyncio.wait_for(self._ws.receive(), OPEN_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise ProtocolError(f"expected open within {OPEN_TIMEOUT_S:g} s") from None
        if message.type is WSMsgType.BINARY:
            raise ProtocolError("expected open as the first message, got a binary frame")
        if message.type is not WSMsgType.TEXT:
            return None
        request = unpack_request(message.data)
        if not isinstance(request, OpenRequest):
            raise ProtocolError("expected open as the first message, got another")
        return request

    async def _refuse(self, error: PersonaPlexError) -> None:
        try:
            await asyncio.wait_for(
                self._ws.send_str(pack_reply(report_from_error(error))), FLUSH_TIMEOUT_S
            )
        except (asyncio.TimeoutError, ConnectionError, aiohttp.ClientError):
            return  # it does not want to know

    async def _converse(self, session: Session) -> None:
        writer = asyncio.create_task(self._write(session), name="session writer")
        others = [
            asyncio.create_task(self._read(session), name="session reader"),
            asyncio.create_task(self._prepare(session), name="session prompt"),
        ]
        try:
            await session.outbox.wait_ended()
            self._engine.close(session)
            await asyncio.wait({writer}, timeout=FLUSH_TIMEOUT_S)
        finally:
            for task in (writer, *others):
                task.cancel()
            await asyncio.gather(writer, *others, return_exceptions=True)

    async def _prepare(self, session: Session) -> None:
        try:
            await self._engine.prepare(session)
        except PersonaPlexError as error:
            self._engine.counters.refused += 1
            session.fail(error)
        except Exception:
            self._fail_unexpectedly(session)

    async def _read(self, session: Session) -> None:
        try:
            async for message in self._ws:
                if message.type is WSMsgType.BINARY:
                    frame = unpack_user_frame(message.data)
                    session.check_number(frame)
                    self._engine.push(session, frame)
                elif message.type is WSMsgType.TEXT:
                    request = unpack_request(message.data)
                    if isinstance(request, OpenRequest):
                        raise ProtocolError("open comes once; a new session is a new connection")
                    if not isinstance(request, CloseRequest):
                        self._engine.steer(session, request)
                        continue
                    self._engine.close(session)
                    await session.freed.wait()
                    session.tell_closed()
                    return
        except PersonaPlexError as error:
            session.fail(error)
        except Exception:
            self._fail_unexpectedly(session)
        finally:
            session.outbox.abandon()

    async def _write(self, session: Session) -> None:
        try:
            async for message in session.outbox.messages():
                if isinstance(message, AgentFrame):
                    await self._ws.send_bytes(pack_agent_frame(message))
                else:
                    await self._ws.send_str(pack_reply(message))
        except (ConnectionError, aiohttp.ClientError):
            session.outbox.abandon()  # the client has gone
        except Exception:
            self._fail_unexpectedly(session)

    def _fail_unexpectedly(self, session: Session) -> None:
        logger.exception("a connection failed", extra={"session": session.session_id})
        session.fail(EngineError("this session failed inside the engine"))
