"""Packing and reading the wire's binary frames; `wire.protocol` gives their layout."""

import struct

from livekit_personaplex.audio import FRAME_BYTES, NUM_TOKEN_ROWS
from livekit_personaplex.errors import ProtocolError
from livekit_personaplex.wire.protocol import AgentFrame, UserFrame

MAX_NUMBER = 2**32 - 2
"""Largest user frame number and step: 10.9 years of talk."""

_USER_KIND = 1
_AGENT_KIND = 2
_NOTHING_HEARD = 2**32 - 1
_USER_HEADER = struct.Struct("<BBHI")
_AGENT_HEADER = struct.Struct(f"<BBHII{NUM_TOKEN_ROWS}H")


def pack_user_frame(frame: UserFrame) -> bytes:
    """Pack a user frame. Raises `ProtocolError` unless its PCM is 3,840 bytes."""
    _check_pcm(frame.pcm)
    return _USER_HEADER.pack(_USER_KIND, 0, 0, frame.number) + frame.pcm


def unpack_user_frame(data: bytes) -> UserFrame:
    """Read a user frame. Raises `ProtocolError`."""
    expected_bytes = _USER_HEADER.size + FRAME_BYTES
    if len(data) != expected_bytes:
        raise ProtocolError(f"a user frame has {expected_bytes} bytes, got {len(data)}")
    kind, zero, zeros, number = _USER_HEADER.unpack_from(data)
    if (kind, zero, zeros) != (_USER_KIND, 0, 0) or number > MAX_NUMBER:
        raise ProtocolError("the header of a user frame is not one of version 1")
    return UserFrame(number, data[_USER_HEADER.size :])


def pack_agent_frame(frame: AgentFrame) -> bytes:
    """Pack an agent frame. Raises `ProtocolError` when its PCM or its tokens have a wrong size."""
    _check_pcm(frame.pcm)
    if len(frame.tokens) != NUM_TOKEN_ROWS:
        raise ProtocolError(f"an agent frame has {NUM_TOKEN_ROWS} tokens, got {len(frame.tokens)}")
    text = frame.text.encode()
    heard = _NOTHING_HEARD if frame.heard is None else frame.heard
    header = _AGENT_HEADER.pack(_AGENT_KIND, 0, len(text), frame.step, heard, *frame.tokens)
    return header + frame.pcm + text


def unpack_agent_frame(data: bytes) -> AgentFrame:
    """Read an agent frame. Raises `ProtocolError`."""
    text_offset = _AGENT_HEADER.size + FRAME_BYTES
    if len(data) < text_offset:
        raise ProtocolError(f"an agent frame has {text_offset} bytes or more, got {len(data)}")
    kind, zero, text_bytes, step, heard, *tokens = _AGENT_HEADER.unpack_from(data)
    if (kind, zero) != (_AGENT_KIND, 0):
        raise ProtocolError("the header of an agent frame is not one of version 1")
    if len(data) != text_offset + text_bytes:
        raise ProtocolError(
            f"this agent frame should have {text_offset + text_bytes} bytes, got {len(data)}"
        )
    try:
        text = data[text_offset:].decode()
    except UnicodeDecodeError:
        raise ProtocolError("the text of an agent frame is not UTF-8") from None
    return AgentFrame(
        step=step,
        pcm=data[_AGENT_HEADER.size : text_offset],
        text=text,
        tokens=tuple(tokens),
        heard=None if heard == _NOTHING_HEARD else heard,
    )


def _check_pcm(pcm: bytes) -> None:
    if len(pcm) != FRAME_BYTES:
        raise ProtocolError(f"a frame has {FRAME_BYTES} bytes of PCM, got {len(pcm)}")
