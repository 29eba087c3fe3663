"""The page's server: static files, a token for each call, and what the engine says of itself.

For development on one machine: it has no users and no passwords, and is refused anywhere but on
loopback (`livekit_personaplex.web.access`). ``examples/token_service.py`` is for all else.

    GET  /                 the page
    GET  /api/options      what can be chosen
    GET  /api/engine       slots and the duration of a step, now
    POST /api/measure      {"persona": TEXT}: its length in tokens
    POST /api/calls        {"voice": ..., ...}: a room and a token for it; 400 says what is wrong
    POST /api/calls/again  {"room": NAME}: calls the agent once more, if nobody has answered
    POST /api/calls/end    {"room": NAME}: ends it
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from livekit import api

from livekit_personaplex.audio import FRAME_MS
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.errors import ConfigError, PersonaPlexError, ProtocolError
from livekit_personaplex.plugin.options import METADATA_KEYS, PersonaPlexOptions
from livekit_personaplex.sampling import MAX_TEMPERATURE, Sampling
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.web.access import check_loopback, local_only
from livekit_personaplex.web.calls import CallDesk
from livekit_personaplex.wire.http import fetch_stats, fetch_voices, measure_persona
from livekit_personaplex.wire.json_message import parse_json
from livekit_personaplex.wire.opening import DEFAULT_VOICE

STATIC = Path(__file__).parent / "static"
LIVEKIT_CLIENT = STATIC / "vendor" / "livekit-client.esm.mjs"
DEFAULT_PORT = 8765

_MAX_REQUEST_BYTES = 131_072


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSetup:
    """What the page stands on.

    Attributes:
        livekit: The LiveKit server that calls are made on.
        engine: Asked for its voices and its counters.
        voice: The one chosen at first; None for the engine's usual one.
        persona: What the page proposes.
        is_noise: The model is a tiny random one: the page says that its speech is noise.
        caller_words: What to say about the caller's own words.
        agent_timeout_s: How long the page waits for the agent.
        reconnect_timeout_s: How long the page tries to get a lost connection back.
    """

    livekit: LiveKitCredentials
    engine: EngineEndpoint
    voice: str | None = None
    persona: str = ""
    is_noise: bool = False
    caller_words: str = "Your words appear where the agent transcribes its callers."
    agent_timeout_s: float = 20.0
    reconnect_timeout_s: float = 30.0


def check_library() -> None:
    """Raise `ConfigError` if the page's library is not installed."""
    if not LIVEKIT_CLIENT.is_file():
        raise ConfigError(
            f"the page to talk on needs livekit-client, and there is none at {LIVEKIT_CLIENT}: "
            "`make web` installs it (and needs npm)"
        )


class PageServer:
    """Serves the page; make it, `start` it on an event loop, `close` it there."""

    def __init__(self, setup: PageSetup, *, host: str = "127.0.0.1") -> None:
        """Make one; nothing is bound yet.

        Raises:
            ConfigError: ``host`` is not loopback; or the page's library is missing.
        """
        self._host = check_loopback(host)
        check_library()
        self._setup = setup
        self._desk = CallDesk(setup.livekit)
        app = web.Application(middlewares=[local_only], client_max_size=_MAX_REQUEST_BYTES)
        app.on_response_prepare.append(self._add_headers)
        app.add_routes(
            [
                web.get("/", self._get_page),
                web.get("/api/options", self._get_options),
                web.get("/api/engine", self._get_engine),
                web.post("/api/measure", self._measure),
                web.post("/api/calls", self._make_call),
                web.post("/api/calls/again", self._call_again),
                web.post("/api/calls/end", self._end_call),
                web.static("/static", STATIC),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, port: int | None = None) -> str:
        """Bind and serve; gives the page's URL.

        Args:
            port: None for `DEFAULT_PORT`, or any free one when that is taken; 0 for any.

        Raises:
            ConfigError: The port is taken.
        """
        await self._runner.setup()
        for wanted in [DEFAULT_PORT, 0] if port is None else [port]:
            site = web.TCPSite(self._runner, self._host, wanted)
            try:
                await site.start()
            except OSError as error:
                if port is None and wanted != 0:
                    continue
                raise ConfigError(f"cannot serve the page on port {wanted} ({error})") from None
            break
        bound = self._runner.addresses[0][1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{bound}/"

    async def close(self) -> None:
        """Stop serving. Idempotent."""
        await self._runner.cleanup()

    # what is served

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        livekit = self._setup.livekit.url
        response.headers["Content-Security-Policy"] = (
            "default-src 'self'; media-src 'self' blob: mediastream:; img-src 'self' data:; "
            f"connect-src 'self' {livekit} {livekit.replace('ws', 'http', 1)}; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"

    async def _get_page(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _get_options(self, request: web.Request) -> web.Response:
        setup, engine = self._setup, self._setup.engine
        try:
            voices = await fetch_voices(engine.address, token=engine.token)
        except PersonaPlexError as error:
            return _refusal(503, str(error))
        options = {
            "voices": voices,
            "voice": setup.voice or DEFAULT_VOICE,
            "persona": setup.persona,
            "keys": METADATA_KEYS,
            "sampling": asdict(Sampling()),
            "max_temperature": MAX_TEMPERATURE,
            "frame_ms": FRAME_MS,
            "head_start_ms": PersonaPlexOptions().output_prebuffer_ms,
            "is_noise": setup.is_noise,
            "caller_words": setup.caller_words,
            "agent_timeout_s": setup.agent_timeout_s,
            "reconnect_timeout_s": setup.reconnect_timeout_s,
        }
        return web.json_response(options)

    async def _get_engine(self, request: web.Request) -> web.Response:
        engine = self._setup.engine
        try:
            stats = await fetch_stats(engine.address, token=engine.token)
        except PersonaPlexError as error:
            return _refusal(503, str(error))
        step_ms = stats.tick_p50_ms if stats.ticks else None
        return web.json_response({"slots": stats.slots, "used": stats.used, "step_ms": step_ms})

    async def _measure(self, request: web.Request) -> web.Response:
        persona, engine = str((await _body(request)).get("persona")), self._setup.engine
        try:
            length = await measure_persona(persona, engine.address, token=engine.token)
        except PersonaPlexError as error:
            return _refusal(503, str(error))
        return web.json_response(asdict(length))

    async def _make_call(self, request: web.Request) -> web.Response:
        try:
            call = self._desk.make_call(await _body(request))
        except ConfigError as error:
            return _refusal(400, str(error))
        return web.json_response(asdict(call))

    async def _call_again(self, request: web.Request) -> web.Response:
        try:
            is_called = await self._desk.call_again(str((await _body(request)).get("room")))
        except (api.TwirpError, OSError) as error:
            return _refusal(503, f"the LiveKit server does not take the call ({error})")
        return web.json_response({"is_called": is_called})

    async def _end_call(self, request: web.Request) -> web.Response:
        await self._desk.end_call(str((await _body(request)).get("room")))
        return web.json_response({})


async def serve_page(
    setup: PageSetup, *, port: int | None, tell: Callable[[str], None], is_up: Callable[[], bool]
) -> None:
    """Serve the page for as long as what it stands on is up.

    Args:
        setup: What that is.
        port: As in `PageServer.start`.
        tell: Given the page's URL, once it is served.
        is_up: Asked twice a second.

    Raises:
        ConfigError: It cannot be served.
    """
    server = PageServer(setup)
    try:
        tell(await server.start(port))
        while is_up():  # noqa: ASYNC110 - that a process has ended is no event here
            await asyncio.sleep(0.5)
    finally:
        await server.close()


async def _body(request: web.Request) -> dict[str, Any]:
    """Give the JSON object that a request carries, in UTF-8 whatever it says."""
    try:
        body = parse_json((await request.read()).decode())
    except (ProtocolError, UnicodeDecodeError):
        body = None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="expected a JSON object")
    return body


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
