"""Plain HTTP to an engine: connections, its counters, its voices, the length of personas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from livekit_personaplex.errors import ConfigError, EngineDiedError, EngineError, ProtocolError
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.protocol import PERSONA_PATH, STATS_PATH, VOICES_PATH
from livekit_personaplex.wire.stats import (
    EngineStats,
    PersonaLength,
    unpack_length,
    unpack_stats,
    unpack_voices,
)


def make_http_session(address: EngineAddress, token: str | None) -> aiohttp.ClientSession:
    """Make an aiohttp session that reaches `address`. Connects to nothing yet."""
    if address.is_unix:
        connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path=address.unix_path)
    else:
        connector = aiohttp.TCPConnector()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
    )


@asynccontextmanager
async def engine_errors(address: EngineAddress) -> AsyncIterator[None]:
    """Turn what aiohttp raises about a connection to `address` into this package's errors."""
    try:
        yield
    except aiohttp.ClientResponseError as error:
        raise _error_of_status(error.status, address) from None
    except (aiohttp.ClientError, OSError) as error:
        raise EngineDiedError(
            f"no engine answers at {address} ({error}); is it running there?"
        ) from None


async def fetch_stats(
    address: EngineAddress, *, token: str | None = None, timeout_s: float = 2.0
) -> EngineStats:
    """Ask an engine for its counters.

    Raises:
        EngineDiedError: It cannot be reached.
        EngineError: It did not answer in time.
        ConfigError: It refused the token.
        ProtocolError: It answered something else.
    """
    return unpack_stats(await _fetch(address, STATS_PATH, token, timeout_s))


async def fetch_voices(
    address: EngineAddress, *, token: str | None = None, timeout_s: float = 2.0
) -> list[str]:
    """Ask an engine for the names of its voices. Raises like `fetch_stats`."""
    return unpack_voices(await _fetch(address, VOICES_PATH, token, timeout_s))


async def measure_persona(
    persona: str, address: EngineAddress, *, token: str | None = None, timeout_s: float = 2.0
) -> PersonaLength:
    """Ask an engine how long a persona is. Raises like `fetch_stats`."""
    body = persona.encode(errors="replace")
    return unpack_length(await _fetch(address, PERSONA_PATH, token, timeout_s, body=body))


async def _fetch(
    address: EngineAddress,
    path: str,
    token: str | None,
    timeout_s: float,
    *,
    body: bytes | None = None,
) -> str:
    try:
        return await asyncio.wait_for(_get_text(address, path, token, body), timeout_s)
    except asyncio.TimeoutError:
        raise EngineError(
            f"the engine at {address} did not answer {path} within {timeout_s:g} s"
        ) from None


async def _get_text(
    address: EngineAddress, path: str, token: str | None, body: bytes | None
) -> str:
    method = "GET" if body is None else "POST"
    async with engine_errors(address), make_http_session(address, token) as http:
        url = address.url(path)
        async with http.request(method, url, data=body, raise_for_status=True) as response:
            return await response.text()


def _error_of_status(status: int, address: EngineAddress) -> Exception:
    if status == 401:
        return ConfigError(
            f"the engine at {address} refused the token; set PERSONAPLEX_TOKEN to the engine's"
        )
    if status == 503:
        return EngineError(f"the engine at {address} is not ready; try again when it is")
    return ProtocolError(
        f"expected an engine of this package at {address}, got an answer with HTTP status {status}"
    )
