"""Getting a slot: from the engines that may take a call to an open session. No torch or livekit."""

import asyncio
from collections.abc import Sequence

from livekit_personaplex.errors import CapacityError, EngineError
from livekit_personaplex.log import logger
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.http import fetch_voices
from livekit_personaplex.wire.protocol import FirstSpeaker, OpenRequest
from livekit_personaplex.wire.ranking import rank_by_free_slots

DEFAULT_VOICE = "NATF2"


async def open_on_any(
    endpoints: Sequence[EngineEndpoint],
    *,
    voice: str | None,
    persona: str,
    sampling: Sampling,
    greeting: str = "",
    first_speaker: FirstSpeaker = "model",
    timeout_s: float = 10.0,
) -> EngineSession:
    """Open a conversation on one of several engines; blocks until its system prompt is done.

    The one with the most free slots is tried first; one that is full, or gone, leaves the call to
    the next.

    Args:
        endpoints: One or more engines.
        voice: None for the engine's usual one.
        persona: Who the agent is.
        sampling: How it draws its tokens.
        greeting: Words that the agent begins with.
        first_speaker: Who has the first word.
        timeout_s: For all of it.

    Raises:
        ConfigError: Voice, persona, sampling or token cannot be used.
        CapacityError: Every slot is taken.
        EngineError: No engine can be reached, or not in time.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + timeout_s
    refusals: list[EngineError] = []
    for endpoint in await rank_by_free_slots(endpoints):
        try:
            request = OpenRequest(
                voice=await _pick_voice(endpoint) if voice is None else voice,
                persona=persona,
                sampling=sampling,
                greeting=greeting,
                first_speaker=first_speaker,
            )
            return await EngineSession.open(
                endpoint.address, request, token=endpoint.token, timeout_s=give_up_s - loop.time()
            )
        except EngineError as error:
            refusals.append(error)
            if loop.time() >= give_up_s:
                break
            logger.debug("an engine does not take this call: %s", error)
    raise _sum_up(refusals)


async def _pick_voice(endpoint: EngineEndpoint) -> str:
    voices = await fetch_voices(endpoint.address, token=endpoint.token)
    return DEFAULT_VOICE if DEFAULT_VOICE in voices or not voices else voices[0]


def _sum_up(refusals: list[EngineError]) -> EngineError:
    """Give the one error for the refusals of all engines."""
    if len(refusals) == 1:
        return refusals[0]
    reasons = "; ".join(dict.fromkeys(str(refusal) for refusal in refusals))
    message = f"none of {len(refusals)} engines takes this call: {reasons}"
    if any(isinstance(refusal, CapacityError) for refusal in refusals):
        return CapacityError(message)
    return EngineError(message)
