"""Spans of a conversation, as whoever collects LiveKit's telemetry receives them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from livekit.agents import llm, telemetry
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from livekit_personaplex import PersonaPlexModel
from livekit_personaplex.errors import EngineDiedError
from tests.fake_engine import FakeEngine


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.tracer.set_provider(provider)
    yield exporter
    telemetry.tracer.set_provider(trace.get_tracer_provider())


async def hold_call(engine: FakeEngine, *, voice: str | None = None, dies: bool = False) -> None:
    model = PersonaPlexModel(engine=str(engine.address), voice=voice)
    session = model.session()
    with telemetry.tracer.start_as_current_span("agent_session"):
        await session._update_session(
            instructions="You are Zoe.", chat_ctx=llm.ChatContext.empty(), tools=[]
        )
    session.arm()
    await asyncio.sleep(0.5)
    if dies:
        await engine.fail(EngineDiedError("the engine failed"))
        await asyncio.sleep(0.5)
    await session.aclose()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


def test_the_opening_and_the_call_are_spans_under_livekits(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            await hold_call(engine)

    asyncio.run(scenario())
    above = named(spans, "agent_session").context
    opening, call = named(spans, "personaplex_open"), named(spans, "personaplex_call")
    for span in (opening, call):
        assert span.parent is not None and span.parent.span_id == above.span_id
        assert span.attributes is not None
        assert span.attributes["personaplex.session"] == "session-1"
        assert "Zoe" not in str(span.attributes) and span.status.status_code is StatusCode.UNSET
    assert call.attributes is not None and call.attributes["personaplex.frames_received"] >= 1
    assert len(spans.get_finished_spans()) == 3, "nothing is traced per frame"


def test_a_refused_opening_and_a_failed_call_are_errors(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            with pytest.raises(llm.RealtimeError):
                await hold_call(engine, voice="NOVA")
            assert named(spans, "personaplex_open").status.status_code is StatusCode.ERROR
            spans.clear()
            await hold_call(engine, dies=True)

    asyncio.run(scenario())
    status = named(spans, "personaplex_call").status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "EngineDiedError")
