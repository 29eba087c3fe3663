"""Who may use an engine. On a Unix socket the file's mode says it; on TCP, its token.

``/health`` is for everyone. The engine's own protocol takes the token as a bearer token. NVIDIA's
clients can send no header of their choice, so ``/api/chat`` and the page also take it as the
password in the address (``ws://any:TOKEN@HOST:PORT``: HTTP basic authentication), and need none on
a loopback address: like NVIDIA's server, which listens on localhost and asks nobody.

Browsers give a password only to who asks for it, as the page does, remember it, and then send it
for pages of other sites too. Those are kept out by the ``Origin`` that browsers send.
"""

import base64
import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import hdrs, web

_BEARER_NEEDED = "this engine needs its token as a bearer token"
_PASSWORD_NEEDED = (
    "this engine needs its token, as a bearer token or as the password in the address: "
    "ws://any:TOKEN@HOST:PORT"
)
_ASK_FOR_BEARER = {hdrs.WWW_AUTHENTICATE: "Bearer"}
_ASK_FOR_PASSWORD = {hdrs.WWW_AUTHENTICATE: 'Basic realm="PersonaPlex: any name, the token"'}
_FOREIGN_PAGE = (
    "pages of other sites may not use this engine; open one from localhost, or the engine's own: "
    "serve --nvidia-client"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """The rule of one engine.

    Attributes:
        token: What clients must know; None: whoever reaches the socket may use it.
        is_loopback: Only this machine reaches the socket.
    """

    token: str | None
    is_loopback: bool

    def check_token(self, request: web.Request) -> None:
        """Raises `HTTPUnauthorized` unless the request carries the token as a bearer token."""
        if self.token is not None and not self._is_bearer(request):
            raise web.HTTPUnauthorized(text=_BEARER_NEEDED, headers=_ASK_FOR_BEARER)

    def check_chat(self, request: web.Request) -> None:
        """Raises `HTTPUnauthorized` or `HTTPForbidden` unless the request may chat."""
        if self.token is None or self._is_bearer(request):
            return
        knows_token = self._is_password(request)
        is_asked = hdrs.AUTHORIZATION in request.headers or not self.is_loopback
        if is_asked and not knows_token:
            raise web.HTTPUnauthorized(text=_PASSWORD_NEEDED, headers=_ASK_FOR_PASSWORD)
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None:
            return
        page_host = _hostname(origin)
        is_own = knows_token and page_host != "" and page_host == _hostname(f"//{request.host}")
        if not is_own and not _is_loopback_host(page_host):
            raise web.HTTPForbidden(text=_FOREIGN_PAGE)

    def check_page(self, request: web.Request) -> None:
        """Raises `HTTPUnauthorized` unless the request may have the page of NVIDIA's client."""
        if self.token is None or self.is_loopback or self._is_password(request):
            return
        raise web.HTTPUnauthorized(text=_PASSWORD_NEEDED, headers=_ASK_FOR_PASSWORD)

    def _is_bearer(self, request: web.Request) -> bool:
        given = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())

    def _is_password(self, request: web.Request) -> bool:
        scheme, _, encoded = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        try:
            decoded = base64.b64decode(encoded, validate=True)
        except ValueError:
            return False
        is_token = hmac.compare_digest(decoded.partition(b":")[2], (self.token or "").encode())
        return is_token and scheme.lower() == "basic"


def _hostname(url: str) -> str:
    """Give the host of what a client says is an address; empty if it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
