"""Who may use the page's server: browsers on this machine that show the page itself, nobody else.

The server mints tokens for whoever asks, which is right for one person at their own machine and for
nobody else. It therefore binds loopback only, and refuses requests that another site makes through
a browser on this machine: by a foreign ``Origin``, or by a foreign name that was made to point to
loopback, which shows in ``Host``.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from livekit_personaplex.errors import ConfigError

_LOCALHOST = "localhost"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def check_loopback(host: str) -> str:
    """Return ``host`` if it is this machine's loopback.

    Raises:
        ConfigError: It is any other address.
    """
    if not _is_loopback(host):
        raise ConfigError(
            f"the page gives a token to whoever asks, so it is served on loopback only (127.0.0.1, "
            f"::1 or localhost), got {host!r}; for other machines run a token service of your own: "
            "examples/token_service.py"
        )
    return host


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what does not come from the page itself, with HTTP status 403."""
    if not _is_loopback(_hostname(f"//{request.host}")):
        raise web.HTTPForbidden(text="this server answers to 127.0.0.1, ::1 and localhost only")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise web.HTTPForbidden(text="this server answers to its own page only")
    return await handler(request)


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == _LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
