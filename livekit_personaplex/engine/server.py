"""The engine's HTTP server: one WebSocket per conversation, health, counters, voices."""

import asyncio
import hmac

from aiohttp import web
from aiohttp.typedefs import Handler

from livekit_personaplex.engine.connection import Connection
from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.listen_socket import ListenSocket
from livekit_personaplex.wire.json_message import dump_json
from livekit_personaplex.wire.protocol import (
    HEALTH_PATH,
    MAX_MESSAGE_BYTES,
    SESSION_PATH,
    STATS_PATH,
    VOICES_PATH,
)
from livekit_personaplex.wire.stats import pack_stats, pack_voices

HEARTBEAT_S = 10.0
"""A silent client is probed this often; without an answer for half of it, it is gone."""
GOODBYE_TIMEOUT_S = 1.0
"""How long a client may take to answer the end of its WebSocket."""
SHUTDOWN_TIMEOUT_S = 2.0


class EngineServer:
    """Serves an engine on a socket. On TCP every request but ``/health`` needs the token."""

    def __init__(
        self, engine: Engine, listen_socket: ListenSocket, *, token: str | None = None
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            engine: May still be loading: it answers 503 until then.
            listen_socket: Bound; the server closes it.
            token: What clients on TCP must know; not asked for on a Unix socket.
        """
        self._engine = engine
        self._listen_socket = listen_socket
        self._token = None if listen_socket.address.is_unix else token
        assert listen_socket.address.is_unix or token, "TCP needs a token"
        app = web.Application(middlewares=[self._check_token])
        app.router.add_get(SESSION_PATH, self._serve_session)
        app.router.add_get(HEALTH_PATH, self._serve_health)
        app.router.add_get(STATS_PATH, self._serve_stats)
        app.router.add_get(VOICES_PATH, self._serve_voices)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S
        )

    async def start(self) -> None:
        """Begin to listen."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listen_socket.socket).start()

    async def stop(self) -> None:
        """Stop listening, say goodbye to every session, and wait for their ends."""
        self._engine.begin_stop()
        await self._runner.cleanup()
        self._listen_socket.close()

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is not None and request.path != HEALTH_PATH:
            given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                raise web.HTTPUnauthorized(text="this engine needs its token as a bearer token")
        return await handler(request)

    async def _serve_session(self, request: web.Request) -> web.StreamResponse:
        if not self._engine.is_ready:
            raise web.HTTPServiceUnavailable(text=f"the engine is {self._engine.phase.value}")
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_MESSAGE_BYTES,
            compress=False,
            timeout=GOODBYE_TIMEOUT_S,
        )
        await ws.prepare(request)
        try:
            await Connection(ws, self._engine).run()
        finally:
            await _end(ws, request.transport)
        return ws

    async def _serve_health(self, request: web.Request) -> web.StreamResponse:
        is_ready = self._engine.is_ready
        body = dump_json({"ready": is_ready, "phase": self._engine.phase.value})
        return web.json_response(text=body, status=200 if is_ready else 503)

    async def _serve_stats(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(text=pack_stats(self._engine.stats()))

    async def _serve_voices(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(text=pack_voices(self._engine.voices()))


async def _end(ws: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
    """Close a WebSocket; a peer that does not play along is cut off."""
    try:
        await asyncio.wait_for(ws.close(), GOODBYE_TIMEOUT_S)
    except asyncio.TimeoutError:
        if transport is not None:
            transport.abort()
