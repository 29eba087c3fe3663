"""Getting a slot: from a call's options and the agent's persona to an open engine session."""

from livekit_personaplex.errors import EngineStartError
from livekit_personaplex.log import logger
from livekit_personaplex.persona import lint_persona
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.opening import open_on_any


async def open_session(options: PersonaPlexOptions, persona: str) -> EngineSession:
    """Open a conversation; blocks until its system prompt is done.

    Raises:
        ConfigError: Voice, persona, address or token cannot be used.
        CapacityError: Every slot is taken.
        EngineError: No engine can be reached, or not in time.
    """
    _log_remarks(persona)
    return await open_on_any(
        find_engines(options),
        voice=options.voice,
        persona=persona,
        sampling=options.sampling,
        greeting=options.greeting,
        first_speaker=options.first_speaker,
        timeout_s=options.open_timeout_s,
    )


def _log_remarks(persona: str) -> None:
    """Tell what may disappoint about a persona; nothing of its text."""
    remarks = lint_persona(persona)
    if remarks:
        logger.warning(
            "the persona may not work well: %s",
            "; ".join(remark.message for remark in remarks),
            extra={"remarks": [remark.code for remark in remarks]},
        )


def find_engines(options: PersonaPlexOptions) -> list[EngineEndpoint]:
    """Say where the engines are: from the options, else from the environment.

    Raises:
        ConfigError: An address cannot be used.
        EngineStartError: Nobody says where an engine is.
    """
    found = EngineEndpoint.each_named(options.engine or "", token=options.token or "")
    if not found:
        raise EngineStartError(
            "no engine is known to this call: run the agent with PersonaPlexServer, which starts "
            "one, or set PERSONAPLEX_ENGINE to the address of a running one"
        )
    return found
