"""The LiveKit server: reachable, keys good, its version, and what browsers ask of its address."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.settings import LiveKitSettings

TIMEOUT_S = 8.0
_OLDEST_VERSION = (1, 9, 2)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


async def check_livekit(settings: LiveKitSettings) -> list[Finding]:
    """Check everything that a worker and its callers need of the LiveKit server."""
    missing = settings.missing()
    if missing:
        return [
            Finding(
                "livekit",
                "failure",
                f"{', '.join(missing)} not set",
                "set LIVEKIT_URL (ws:// or wss://), LIVEKIT_API_KEY and LIVEKIT_API_SECRET to your "
                "LiveKit server's; make demo needs none",
            )
        ]
    try:
        from livekit import api  # noqa: F401
    except ImportError:
        advice = "pip install livekit-agents"
        return [Finding("livekit", "skipped", "livekit-agents is not installed here", advice)]
    try:
        urlsplit(settings.url)
    except ValueError as error:
        advice = "set it to what the server says, like wss://HOST or ws://localhost:7880"
        return [Finding("livekit", "failure", f"LIVEKIT_URL is no address ({error})", advice)]
    access = await _check_access(settings)
    findings = [access, judge_address(settings.url)]
    if access.state == "ok":
        findings.insert(1, await _check_version(settings))
    return findings


async def _check_access(settings: LiveKitSettings) -> Finding:
    """Call the server's API, as who mints tokens and places calls does."""
    from livekit import api

    where = urlsplit(settings.url).netloc
    client = api.LiveKitAPI(settings.url, settings.api_key, settings.api_secret)
    try:
        rooms = await asyncio.wait_for(client.room.list_rooms(api.ListRoomsRequest()), TIMEOUT_S)
    except (api.TwirpError, aiohttp.ClientResponseError) as error:
        advice = "take key and secret of one pair, from the server's configuration"
        return Finding("livekit", "failure", f"{where} refuses the keys ({error})", advice)
    except (aiohttp.ClientError, OSError, ValueError, asyncio.TimeoutError) as error:
        reason = str(error) or type(error).__name__
        advice = "see that the server runs, that LIVEKIT_URL is its address, and that no firewall "
        advice += "is between"
        return Finding("livekit", "failure", f"{where} cannot be reached ({reason})", advice)
    finally:
        await client.aclose()
    return Finding("livekit", "ok", f"{where} takes the keys; {len(rooms.rooms)} rooms now")


async def _check_version(settings: LiveKitSettings) -> Finding:
    """Register as a worker for a moment, which is where a server tells its version."""
    try:
        version = await asyncio.wait_for(_read_version(settings), TIMEOUT_S)
    except (aiohttp.ClientError, OSError, ValueError, asyncio.TimeoutError) as error:
        reason = str(error) or type(error).__name__
        advice = "see that a proxy in front of the server passes WebSockets on /agent"
        return Finding("livekit workers", "failure", f"no worker can register ({reason})", advice)
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    if len(numbers) == 3 and numbers < _OLDEST_VERSION:
        advice = "update it to 1.9.2 or later, which tells callers the agent's name"
        return Finding("livekit workers", "warning", f"livekit-server {version} is old", advice)
    return Finding("livekit workers", "ok", f"can register; livekit-server {version}")


async def _read_version(settings: LiveKitSettings) -> str:
    from livekit import api
    from livekit.protocol import agent

    token = api.AccessToken(settings.api_key, settings.api_secret)
    token.with_grants(api.VideoGrants(agent=True))
    register = agent.RegisterWorkerRequest(
        type=agent.JT_ROOM,
        agent_name="personaplex-doctor",
        version="1.0.0",
    )
    headers = {"Authorization": f"Bearer {token.to_jwt()}"}
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(_agent_url(settings.url), headers=headers) as ws:
            await ws.send_bytes(agent.WorkerMessage(register=register).SerializeToString())
            message = await ws.receive()
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise ValueError(f"it ended the connection ({message.data})")
    return str(agent.ServerMessage.FromString(message.data).register.server_info.version)


def _agent_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/agent", "", ""))


def judge_address(url: str) -> Finding:
    """Browsers give a microphone only to pages that came over TLS or from this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in ("wss", "https"):
        text = "pages on https:// may use the microphone and connect; others get no microphone"
        return Finding("browsers", "ok", text)
    if host in _LOOPBACK:
        text = "pages on http://localhost may use the microphone and connect; for other machines "
        text += "serve LiveKit and the page with TLS"
        return Finding("browsers", "ok", text)
    return Finding(
        "browsers",
        "warning",
        f"{url} is without TLS: a page on https:// may not connect to it, and a page on http:// "
        "gets no microphone",
        "put a TLS proxy before livekit-server and use wss://; phones and scripts do not mind",
    )
