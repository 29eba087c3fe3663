"""Engines that run already, where PERSONAPLEX_ENGINE names them."""

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.http import fetch_stats


async def check_engines(endpoints: list[EngineEndpoint]) -> list[Finding]:
    """Ask each engine how it is."""
    return [await _check_engine(endpoint) for endpoint in endpoints]


async def _check_engine(endpoint: EngineEndpoint) -> Finding:
    try:
        stats = await fetch_stats(endpoint.address, token=endpoint.token)
    except PersonaPlexError as error:
        advice = "start it with livekit-personaplex serve, or correct PERSONAPLEX_ENGINE"
        return Finding("engine", "failure", str(error), advice)
    text = f"{endpoint.address}: {stats.used} of {stats.slots} slots in use"
    if not stats.ready:
        return Finding("engine", "failure", f"{endpoint.address} is not ready", "read its log")
    if stats.tick_p99_ms > 80.0:
        advice = "use fewer slots, PERSONAPLEX_KV=fp8, or a faster GPU: calls have gaps"
        text = f"{text}, but its ticks take {stats.tick_p99_ms:.0f} ms (99th percentile) of 80"
        return Finding("engine", "warning", text, advice)
    return Finding("engine", "ok", text)
