"""Everything this package raises on purpose.

    PersonaPlexError
    ├── ConfigError (also ValueError)   an option, voice, persona or setting that cannot be used
    ├── CheckpointError                 model files that are missing, unreadable or do not fit
    ├── ProtocolError                   the other side of the wire broke the protocol
    └── EngineError                     the engine, seen from a call
        ├── EngineStartError            it did not become ready
        ├── EngineDiedError             it was there and is gone
        ├── CapacityError               every slot is taken
        └── SessionClosedError          this session is over

A message says what was expected, what came, and what to do about it.
"""


class PersonaPlexError(Exception):
    """Base of every error raised on purpose by this package."""


class ConfigError(PersonaPlexError, ValueError):
    """An option, voice, persona or setting cannot be used as given."""


class CheckpointError(PersonaPlexError):
    """Model files are missing, unreadable, or disagree with their configuration."""


class ProtocolError(PersonaPlexError):
    """The other side of the wire sent something the protocol does not allow."""


class EngineError(PersonaPlexError):
    """The engine cannot serve this call."""


class EngineStartError(EngineError):
    """The engine process ended, or did not become ready in time, while starting."""


class EngineDiedError(EngineError):
    """The connection to a running engine ended without a goodbye."""


class CapacityError(EngineError):
    """Every slot of the engine is taken."""


class SessionClosedError(EngineError):
    """The session has ended and takes no more frames."""
