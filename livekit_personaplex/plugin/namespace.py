"""The plugin under LiveKit's name for plugins, ``livekit.plugins.personaplex``.

The build copies this module there, beside the plugins that LiveKit itself publishes, so that
``python -m livekit.agents download-files`` finds it.
"""

from livekit_personaplex.plugin import (
    PersonaPlexModel,
    PersonaPlexServer,
    PersonaPlexSession,
    SessionStats,
)
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.version import __version__

__all__ = [
    "PersonaPlexModel",
    "PersonaPlexServer",
    "PersonaPlexSession",
    "Sampling",
    "SessionStats",
    "__version__",
]
