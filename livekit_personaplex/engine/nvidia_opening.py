"""How a chat by NVIDIA's protocol begins, or is refused: before the upgrade to a WebSocket.

A refusal is an HTTP status with the error of ``/v1/session`` as JSON: 400 for a request that cannot
be used, 503 when every slot is taken or the engine does not serve now. It comes at once: nobody
waits in line. All of NVIDIA's clients take a failed upgrade for the end, and LiveKit's plugin for
an error that it does not try again; a WebSocket that opens and closes would make it knock for ever.
"""

from aiohttp import hdrs, web

from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.nvidia_query import read_query
from livekit_personaplex.engine.session import Session
from livekit_personaplex.errors import ConfigError, PersonaPlexError
from livekit_personaplex.wire.error_reports import report_from_error
from livekit_personaplex.wire.protocol import pack_reply

RETRY_AFTER_S = 5


async def open_chat(request: web.Request, engine: Engine) -> Session:
    """Give a slot to a client and its prompt to the core; the caller closes the session.

    Raises:
        HTTPException: The refusal.
    """
    if not web.WebSocketResponse().can_prepare(request):
        raise web.HTTPBadRequest(text="a chat is a WebSocket; this request asks for none")
    if not engine.is_ready:
        raise web.HTTPServiceUnavailable(text=f"the engine is {engine.phase.value}", headers=_LATER)
    session: Session | None = None
    try:
        session = engine.reserve(read_query(request.query, engine.voices()))
        await engine.prepare(session)
    except BaseException as error:
        if session is not None:
            engine.close(session)
        if not isinstance(error, PersonaPlexError):
            raise
        engine.counters.refused += 1
        raise _refusal(error) from None
    return session


_LATER = {hdrs.RETRY_AFTER: str(RETRY_AFTER_S)}


def _refusal(error: PersonaPlexError) -> web.HTTPException:
    body = pack_reply(report_from_error(error))
    if isinstance(error, ConfigError):
        return web.HTTPBadRequest(text=body, content_type="application/json")
    return web.HTTPServiceUnavailable(text=body, content_type="application/json", headers=_LATER)
