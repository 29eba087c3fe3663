"""This package's errors as GStreamer's element errors."""

from gi.repository import Gst

from livekit_personaplex.errors import (
    CapacityError,
    ConfigError,
    EngineDiedError,
    PersonaPlexError,
    SessionClosedError,
)


def post_error(element: Gst.Element, error: PersonaPlexError, *, is_opening: bool) -> None:
    """Post an error message of `element` whose text is that of `error`.

    Args:
        element: Whose bus is told; any thread.
        error: What happened.
        is_opening: It happened while the session was opened.
    """
    code = Gst.ResourceError.OPEN_READ_WRITE if is_opening else Gst.ResourceError.READ
    match error:
        case ConfigError():
            code = Gst.ResourceError.SETTINGS
        case CapacityError():
            code = Gst.ResourceError.BUSY
        case SessionClosedError():
            code = Gst.ResourceError.CLOSE
        case EngineDiedError():
            pass
        case _:
            code = Gst.ResourceError.FAILED
    domain = Gst.resource_error_quark()
    _post(element, domain, code, str(error), f"{type(error).__name__} of livekit-personaplex")


def post_stream_error(element: Gst.Element, code: Gst.StreamError, text: str) -> None:
    """Post an error message of `element` about the audio that it was given, or gives."""
    _post(element, Gst.stream_error_quark(), code, text, "the data flow of this element ends")


def _post(element: Gst.Element, domain: int, code: int, text: str, debug: str) -> None:
    element.message_full(Gst.MessageType.ERROR, domain, int(code), text, debug, __file__, "", 0)
