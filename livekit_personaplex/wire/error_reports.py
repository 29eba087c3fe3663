"""How this package's errors cross the wire: to a report in the engine, to an error in a call."""

from livekit_personaplex.errors import (
    CapacityError,
    ConfigError,
    EngineDiedError,
    EngineError,
    PersonaPlexError,
    ProtocolError,
    SessionClosedError,
)
from livekit_personaplex.wire.protocol import ErrorCode, ErrorReport


def report_from_error(error: PersonaPlexError) -> ErrorReport:
    """Give the report that tells a client about `error`."""
    code: ErrorCode
    match error:
        case CapacityError():
            code = "capacity"
        case ConfigError():
            code = "config"
        case ProtocolError():
            code = "protocol"
        case SessionClosedError():
            code = "closing"
        case EngineDiedError():
            code = "engine"
        case _:
            code = "internal"
    return ErrorReport(code, str(error))


def error_from_report(report: ErrorReport) -> PersonaPlexError:
    """Give the error that a client raises for `report`."""
    match report.code:
        case "capacity":
            return CapacityError(report.message)
        case "config":
            return ConfigError(report.message)
        case "protocol":
            return ProtocolError(report.message)
        case "closing" | "slow":
            return SessionClosedError(report.message)
        case "engine":
            return EngineDiedError(report.message)
        case "internal":
            return EngineError(report.message)
