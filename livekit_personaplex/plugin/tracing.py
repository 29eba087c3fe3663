"""Spans under LiveKit's own: one for the opening of a conversation, one for the whole of it.

Nothing is traced per frame. Speech, words, personas and names are not part of them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from livekit.agents import telemetry
from opentelemetry.trace import Span, Status, StatusCode

from livekit_personaplex.plugin.usage import SessionStats
from livekit_personaplex.wire.client import EngineSession

OPEN_SPAN = "personaplex_open"
CALL_SPAN = "personaplex_call"


@contextmanager
def traced_opening() -> Iterator[Span]:
    """Trace what the block does; an error that leaves it is recorded."""
    with telemetry.tracer.detached_span(OPEN_SPAN) as span:
        yield span


def describe_opening(span: Span, engine: EngineSession) -> None:
    """Note on the span of an opening what was opened."""
    span.set_attributes(_attributes_of(engine))


class CallSpan:
    """The span of one open conversation; `end` it, whatever happens."""

    def __init__(self, engine: EngineSession) -> None:
        """Begin now, under the span that is current."""
        self._span = telemetry.tracer.start_span(CALL_SPAN, attributes=_attributes_of(engine))

    def fail(self, error: Exception) -> None:
        """Note why the conversation cannot go on; the kind only, messages may hold anything."""
        self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))

    def end(self, stats: SessionStats) -> None:
        """End it with the conversation's figures."""
        figures = {name: value for name, value in asdict(stats).items() if not math.isnan(value)}
        self._span.set_attributes({f"personaplex.{name}": value for name, value in figures.items()})
        self._span.end()


def _attributes_of(engine: EngineSession) -> dict[str, str | int | float]:
    return {
        "personaplex.session": engine.session_id,
        "personaplex.seed": engine.seed,
        "personaplex.open_ms": engine.open_ms,
        "personaplex.prompt_steps": engine.prompt_steps,
    }
