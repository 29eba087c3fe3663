"""The LiveKit side: a duplex model for agents, and a worker that runs the engine. No torch.

Importing it registers the plugin with LiveKit, so it belongs at the top of an agent's module.
"""

from livekit_personaplex.plugin.local_stt import LocalSTT
from livekit_personaplex.plugin.model import PersonaPlexModel
from livekit_personaplex.plugin.registration import register
from livekit_personaplex.plugin.server import PersonaPlexServer
from livekit_personaplex.plugin.session import PersonaPlexSession
from livekit_personaplex.plugin.usage import SessionStats
from livekit_personaplex.plugin.watchdogs import (
    AgentSilentEvent,
    AgentSpeakingEvent,
    CallerUnheardEvent,
    Watchdogs,
)

__all__ = [
    "AgentSilentEvent",
    "AgentSpeakingEvent",
    "CallerUnheardEvent",
    "LocalSTT",
    "PersonaPlexModel",
    "PersonaPlexServer",
    "PersonaPlexSession",
    "SessionStats",
    "Watchdogs",
]

register()
