"""Getting a slot: from a call's options and the agent's persona to an open engine session."""

import asyncio

from livekit_personaplex.errors import CapacityError, EngineError, EngineStartError
from livekit_personaplex.log import logger
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.http import fetch_voices
from livekit_personaplex.wire.protocol import OpenRequest
from livekit_personaplex.wire.ranking import rank_by_free_slots

DEFAULT_VOICE = "NATF2"


async def open_session(options: PersonaPlexOptions, persona: str) -> EngineSession:
    """Open a conversation; blocks until its system prompt is done.

    Of several engines the one with the most free slots is tried first; one that is full, or gone,
    leaves the call to the next.

    Raises:
        ConfigError: Voice, persona, address or token cannot be used.
        CapacityError: Every slot is taken.
        EngineError: No engine can be reached, or not in time.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + options.open_timeout_s
    endpoints = await rank_by_free_slots(find_engines(options))
    refusals: list[EngineError] = []
    for endpoint in endpoints:
        try:
            return await _open_on(endpoint, options, persona, timeout_s=give_up_s - loop.time())
        except EngineError as error:
            refusals.append(error)
            if loop.time() >= give_up_s:
                break
            logger.debug("an engine does not take this call: %s", error)
    raise _sum_up(refusals)


def find_engines(options: PersonaPlexOptions) -> list[EngineEndpoint]:
    """Say where the engines are: from the options, else from the environment.

    Raises:
        ConfigError: An address cannot be used.
        EngineStartError: Nobody says where an engine is.
    """
    found = EngineEndpoint.each_from_env()
    if options.engine is not None:
        token = options.token or (found[0].token if found else None)
        return [EngineEndpoint(address=EngineAddress.parse(options.engine), token=token)]
    if not found:
        raise EngineStartError(
            "no engine is known to this call: run the agent with PersonaPlexServer, which starts "
            "one, or set PERSONAPLEX_ENGINE to the address of a running one"
        )
    return found


async def _open_on(
    endpoint: EngineEndpoint, options: PersonaPlexOptions, persona: str, *, timeout_s: float
) -> EngineSession:
    voice = options.voice
    if voice is None:
        voice = await _pick_voice(endpoint)
    request = OpenRequest(voice=voice, persona=persona, sampling=options.sampling)
    return await EngineSession.open(
        endpoint.address, request, token=endpoint.token, timeout_s=timeout_s
    )


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
