"""Getting a slot: from a call's options and the agent's persona to an open engine session."""

from livekit_personaplex.errors import EngineStartError
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.http import fetch_voices
from livekit_personaplex.wire.protocol import OpenRequest

DEFAULT_VOICE = "NATF2"


async def open_session(options: PersonaPlexOptions, persona: str) -> EngineSession:
    """Open a conversation with the engine; blocks until its system prompt is done.

    Raises:
        ConfigError: Voice, persona, address or token cannot be used.
        CapacityError: Every slot is taken.
        EngineError: The engine cannot be reached, or not in time.
    """
    endpoint = find_engine(options)
    voice = options.voice
    if voice is None:
        voice = await _pick_voice(endpoint)
    request = OpenRequest(voice=voice, persona=persona, sampling=options.sampling)
    return await EngineSession.open(
        endpoint.address, request, token=endpoint.token, timeout_s=options.open_timeout_s
    )


def find_engine(options: PersonaPlexOptions) -> EngineEndpoint:
    """Say where the engine is: from the options, else from the environment.

    Raises:
        ConfigError: An address cannot be used.
        EngineStartError: Nobody says where the engine is.
    """
    found = EngineEndpoint.from_env()
    if options.engine is not None:
        token = options.token or (found.token if found is not None else None)
        return EngineEndpoint(address=EngineAddress.parse(options.engine), token=token)
    if found is None:
        raise EngineStartError(
            "no engine is known to this call: run the agent with PersonaPlexServer, which starts "
            "one, or set PERSONAPLEX_ENGINE to the address of a running one"
        )
    return found


async def _pick_voice(endpoint: EngineEndpoint) -> str:
    voices = await fetch_voices(endpoint.address, token=endpoint.token)
    return DEFAULT_VOICE if DEFAULT_VOICE in voices or not voices else voices[0]
