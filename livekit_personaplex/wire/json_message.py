"""JSON from a stranger: parsed strictly, taken apart field by field, errors without its content."""

import json
import math
from typing import Any

from livekit_personaplex.errors import ProtocolError

MAX_INT_CHARS = 20
"""A sign and 63 bits. Longer ones would not even fit into a float."""


def dump_json(value: object) -> str:
    """Write compact JSON. NaN and Infinity are a bug of ours: ValueError."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_json(text: str) -> object:
    """Parse JSON strictly: no NaN or Infinity, no repeated keys, no endless digits or nesting.

    Raises:
        ProtocolError: It is not such JSON. The text is not part of the error, nor of its cause.
    """
    try:
        value: object = json.loads(
            text,
            parse_int=_parse_int,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_keys,
        )
    except ValueError:
        raise ProtocolError("expected a JSON message, got something else") from None
    except RecursionError:
        raise ProtocolError("expected a flat JSON message, got deep nesting") from None
    return value


class JsonMessage:
    """One JSON object whose fields are taken one by one; `finish` refuses what was not taken."""

    def __init__(self, text: str) -> None:
        """Parse `text`. Raises `ProtocolError` unless it is a JSON object."""
        value = parse_json(text)
        if not isinstance(value, dict):
            raise ProtocolError("expected a JSON object")
        self._fields: dict[str, object] = value

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def take_str(self, name: str) -> str:
        """Take a string field. Raises `ProtocolError` when it is missing or another type."""
        value = self._take(name)
        if not isinstance(value, str):
            raise _wrong_type(name, "a string")
        return value

    def take_int(self, name: str) -> int:
        """Take a whole number. Raises `ProtocolError` when it is missing or another type."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(name, "a whole number")
        return value

    def take_float(self, name: str) -> float:
        """Take a finite number. Raises `ProtocolError` when it is missing or another type."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong_type(name, "a number")
        if not math.isfinite(value):
            raise _wrong_type(name, "a finite number")
        return float(value)

    def take_bool(self, name: str) -> bool:
        """Take true or false. Raises `ProtocolError` when it is missing or another type."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise _wrong_type(name, "true or false")
        return value

    def take_dict(self, name: str) -> dict[str, Any]:
        """Take an object. Raises `ProtocolError` when it is missing or another type."""
        value = self._take(name)
        if not isinstance(value, dict):
            raise _wrong_type(name, "an object")
        return value

    def finish(self) -> None:
        """Raises `ProtocolError` when fields are left."""
        if self._fields:
            raise ProtocolError(f"the message has {len(self._fields)} unknown fields")

    def _take(self, name: str) -> object:
        if name not in self._fields:
            raise ProtocolError(f"the message lacks the field {name!r}")
        return self._fields.pop(name)


def _wrong_type(name: str, expected: str) -> ProtocolError:
    return ProtocolError(f"the field {name!r} must be {expected}")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_INT_CHARS:
        raise ValueError("a number has too many digits")
    return int(digits)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is there twice")
    return fields
