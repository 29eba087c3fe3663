"""NVIDIA PersonaPlex, a full-duplex speech model, in LiveKit calls.

The public names live in their own modules and are loaded when they are first used: importing this
package loads neither livekit nor torch, and the engine's side works where livekit is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from livekit_personaplex.version import __version__

if TYPE_CHECKING:
    from livekit_personaplex.errors import (
        CapacityError,
        CheckpointError,
        ConfigError,
        EngineDiedError,
        EngineError,
        EngineStartError,
        PersonaPlexError,
        ProtocolError,
        SessionClosedError,
    )
    from livekit_personaplex.plugin import (
        AgentSilentEvent,
        AgentSpeakingEvent,
        CallerUnheardEvent,
        LocalSTT,
        PersonaPlexModel,
        PersonaPlexServer,
        PersonaPlexSession,
        SessionStats,
        Watchdogs,
    )
    from livekit_personaplex.sampling import Sampling

__all__ = [
    "AgentSilentEvent",
    "AgentSpeakingEvent",
    "CallerUnheardEvent",
    "CapacityError",
    "CheckpointError",
    "ConfigError",
    "EngineDiedError",
    "EngineError",
    "EngineStartError",
    "LocalSTT",
    "PersonaPlexError",
    "PersonaPlexModel",
    "PersonaPlexServer",
    "PersonaPlexSession",
    "ProtocolError",
    "Sampling",
    "SessionClosedError",
    "SessionStats",
    "Watchdogs",
    "__version__",
]

_PLUGIN_NAMES = (
    "AgentSilentEvent",
    "AgentSpeakingEvent",
    "CallerUnheardEvent",
    "LocalSTT",
    "PersonaPlexModel",
    "PersonaPlexServer",
    "PersonaPlexSession",
    "SessionStats",
    "Watchdogs",
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "errors"
    if name in _PLUGIN_NAMES:
        room = "plugin"
    elif name == "Sampling":
        room = "sampling"
    return getattr(import_module(f"{__name__}.{room}"), name)


def __dir__() -> list[str]:
    return __all__
