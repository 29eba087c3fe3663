"""The engine's HTTP server: one WebSocket per conversation, health, counters, metrics, voices."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import WSCloseCode, hdrs, web
from aiohttp.typedefs import Handler

from livekit_personaplex.engine.access import Access
from livekit_personaplex.engine.connection import Connection
from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.listen_socket import ListenSocket
from livekit_personaplex.engine.nvidia_chat import CHAT_PATH, NvidiaChat
from livekit_personaplex.engine.nvidia_opening import open_chat
from livekit_personaplex.engine.nvidia_page import add_page, is_of_page
from livekit_personaplex.wire.json_message import dump_json
from livekit_personaplex.wire.protocol import (
    HEALTH_PATH,
    MAX_MESSAGE_BYTES,
    MAX_PERSONA_BYTES,
    METRICS_PATH,
    PERSONA_PATH,
    SESSION_PATH,
    STATS_PATH,
    VOICES_PATH,
)
from livekit_personaplex.wire.stats import pack_length, pack_stats, pack_voices

HEARTBEAT_S = 10.0
"""A silent client is probed this often; without an answer for half of it, it is gone."""
GOODBYE_TIMEOUT_S = 1.0
"""How long a client may take to answer the end of its WebSocket."""
SHUTDOWN_TIMEOUT_S = 2.0
MAX_REQUEST_LINE_BYTES = 4_096 + 3 * MAX_PERSONA_BYTES
"""The longest persona, percent-encoded in a query, and the rest."""


class EngineServer:
    """Serves an engine on a socket; `Access` says to whom."""

    def __init__(
        self,
        engine: Engine,
        listen_socket: ListenSocket,
        *,
        token: str | None = None,
        nvidia_protocol: bool = False,
        nvidia_client_dir: Path | None = None,
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            engine: May still be loading: it answers 503 until then.
            listen_socket: Bound; the server closes it.
            token: What clients on TCP must know; not asked for on a Unix socket.
            nvidia_protocol: Also serve clients of NVIDIA's protocol, on ``/api/chat``.
            nvidia_client_dir: NVIDIA's browser client, to be served at the root.
        """
        self._engine = engine
        self._listen_socket = listen_socket
        is_unix = listen_socket.address.is_unix
        assert is_unix or token, "TCP needs a token"
        self._access = Access(
            token=None if is_unix else token, is_loopback=listen_socket.is_loopback
        )
        app = web.Application(middlewares=[self._check_access], client_max_size=MAX_MESSAGE_BYTES)
        app.router.add_get(SESSION_PATH, self._serve_session)
        app.router.add_get(HEALTH_PATH, self._serve_health)
        app.router.add_get(STATS_PATH, self._serve_stats)
        app.router.add_get(METRICS_PATH, self._serve_metrics)
        app.router.add_get(VOICES_PATH, self._serve_voices)
        app.router.add_post(PERSONA_PATH, self._serve_persona)
        if nvidia_protocol:
            app.router.add_get(CHAT_PATH, self._serve_chat)
        if nvidia_client_dir is not None:
            add_page(app, nvidia_client_dir)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            max_line_size=MAX_REQUEST_LINE_BYTES,
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
    async def _check_access(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == CHAT_PATH:
            self._access.check_chat(request)
        elif is_of_page(request):
            self._access.check_page(request)
        elif request.path != HEALTH_PATH:
            self._access.check_token(request)
        return await handler(request)

    async def _serve_session(self, request: web.Request) -> web.StreamResponse:
        if not self._engine.is_ready:
            raise web.HTTPServiceUnavailable(text=f"the engine is {self._engine.phase.value}")

        async def converse(ws: web.WebSocketResponse) -> WSCloseCode:
            await Connection(ws, self._engine).run()
            return WSCloseCode.OK

        return await _serve_websocket(request, converse)

    async def _serve_chat(self, request: web.Request) -> web.StreamResponse:
        session = await open_chat(request, self._engine)

        is_page = hdrs.ORIGIN in request.headers

        async def converse(ws: web.WebSocketResponse) -> WSCloseCode:
            return await NvidiaChat(ws, self._engine, session, is_page=is_page).run()

        try:
            return await _serve_websocket(request, converse)
        finally:
            self._engine.close(session)

    async def _serve_health(self, request: web.Request) -> web.StreamResponse:
        is_ready = self._engine.is_ready
        body = dump_json({"ready": is_ready, "phase": self._engine.phase.value})
        return web.json_response(text=body, status=200 if is_ready else 503)

    async def _serve_stats(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(text=pack_stats(self._engine.stats()))

    async def _serve_metrics(self, request: web.Request) -> web.StreamResponse:
        from livekit_personaplex.wire import metrics  # brings the Prometheus client

        body = metrics.render_engine_metrics(self._engine.device, self._engine.stats())
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _serve_voices(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(text=pack_voices(self._engine.voices()))

    async def _serve_persona(self, request: web.Request) -> web.StreamResponse:
        persona = (await request.read()).decode(errors="replace")
        length = await self._engine.measure_persona(persona)
        if length is None:
            raise web.HTTPServiceUnavailable(text=f"the engine is {self._engine.phase.value}")
        return web.json_response(text=pack_length(length))


async def _serve_websocket(
    request: web.Request, converse: Callable[[web.WebSocketResponse], Awaitable[WSCloseCode]]
) -> web.WebSocketResponse:
    ws = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S,
        max_msg_size=MAX_MESSAGE_BYTES,
        compress=False,
        timeout=GOODBYE_TIMEOUT_S,
    )
    await ws.prepare(request)
    close_code = WSCloseCode.OK
    try:
        close_code = await converse(ws)
    finally:
        await _end(ws, request.transport, close_code)
    return ws


async def _end(
    ws: web.WebSocketResponse, transport: asyncio.Transport | None, code: WSCloseCode
) -> None:
    """Close a WebSocket; a peer that does not play along is cut off."""
    try:
        await asyncio.wait_for(ws.close(code=code), GOODBYE_TIMEOUT_S)
    except asyncio.TimeoutError:
        if transport is not None:
            transport.abort()
