"""Which of several engines a call should try first. No torch, no livekit."""

import asyncio
import random
from collections.abc import Sequence

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.http import fetch_stats

STATS_TIMEOUT_S = 0.5
"""An engine that takes longer to count its slots is tried last."""


async def rank_by_free_slots(endpoints: Sequence[EngineEndpoint]) -> list[EngineEndpoint]:
    """Order engines by free slots, most first; those that are full or do not answer stand last.

    Engines with as many free slots as each other stand in random order, so that calls that begin
    at the same time do not all go to the same one. A single engine is asked nothing.
    """
    if len(endpoints) <= 1:
        return list(endpoints)
    shuffled = random.sample(list(endpoints), k=len(endpoints))
    free = await asyncio.gather(*(_count_free(endpoint) for endpoint in shuffled))
    ranked = sorted(zip(free, shuffled, strict=True), key=lambda pair: -pair[0])
    return [endpoint for _, endpoint in ranked]


async def _count_free(endpoint: EngineEndpoint) -> int:
    try:
        stats = await fetch_stats(endpoint.address, token=endpoint.token, timeout_s=STATS_TIMEOUT_S)
    except PersonaPlexError:
        return -1
    return stats.slots - stats.used if stats.ready else -1
