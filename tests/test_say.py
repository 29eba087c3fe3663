"""Steering a conversation over the wire, on a fake core that says a given word at every step."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from safetensors import safe_open

from livekit_personaplex.errors import ConfigError, ProtocolError, SessionClosedError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.client import MAX_WAITING_TEXTS, EngineSession
from livekit_personaplex.wire.frames import pack_user_frame
from livekit_personaplex.wire.protocol import (
    MAX_ID,
    MAX_SPEECH_BYTES,
    AgentFrame,
    OpenRequest,
    Refused,
    ReleaseRequest,
    Reply,
    Request,
    Said,
    SayRequest,
    StopSayingRequest,
    UserFrame,
    pack_reply,
    pack_request,
    unpack_reply,
    unpack_request,
)
from tests.engine_harness import RunningEngine, running_engine, said, talk
from tests.fakes import FakeCore, expected_talk, user_frames

OPEN = {"voice": "ANN", "persona": "You are Ann.", "sampling": Sampling(seed=1)}


def given(text: str) -> list[int]:
    return FakeCore().prepare_words(text)


@pytest.mark.parametrize(
    "request_",
    [
        SayRequest(0, "Hello, Zoë. 😀"),
        SayRequest(MAX_ID, ""),
        StopSayingRequest(),
        ReleaseRequest(),
        OpenRequest(**OPEN, greeting="Hi!", first_speaker="agent"),  # type: ignore[arg-type]
        OpenRequest(**OPEN, first_speaker="caller"),  # type: ignore[arg-type]
    ],
)
def test_requests_round_trip(request_: Request) -> None:
    assert unpack_request(pack_request(request_)) == request_


@pytest.mark.parametrize("reply", [Said(3, True), Said(0, False), Refused(7, "too long")])
def test_replies_round_trip(reply: Reply) -> None:
    assert unpack_reply(pack_reply(reply)) == reply


def test_an_open_of_an_older_client_is_taken() -> None:
    plain = OpenRequest(**OPEN)  # type: ignore[arg-type]
    assert set(json.loads(pack_request(plain))) == {
        "type",
        "version",
        "voice",
        "persona",
        "sampling",
    }
    assert unpack_request(pack_request(plain)) == plain


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"say","text":"hello"}',
        '{"type":"say","id":1}',
        '{"type":"say","id":"1","text":"hello"}',
        '{"type":"say","id":-1,"text":"hello"}',
        '{"type":"say","id":9007199254740993,"text":"hello"}',
        '{"type":"say","id":1,"text":3}',
        '{"type":"say","id":1,"text":"hello","loud":true}',
        '{"type":"release","now":true}',
        '{"type":"stop_saying","id":1}',
    ],
)
def test_other_requests_break_the_protocol(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_request(text)


@pytest.mark.parametrize(
    "changes",
    [{"greeting": "x" * (MAX_SPEECH_BYTES + 1)}, {"greeting": "\ud800"}, {"first_speaker": "dog"}],
)
def test_an_opening_that_cannot_be_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        OpenRequest(**OPEN, **changes)  # type: ignore[arg-type]


def test_a_greeting_is_said_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open(greeting="Hello there you")
            frames = await talk(session, user_frames(6))
            await session.aclose()
        texts = [frame.tokens[0] for frame in frames]
        assert texts[:3] == given("Hello there you")
        assert texts[3:] == [t[0] for t in expected_talk(user_frames(6)).tokens[3:]]

    asyncio.run(run())


def test_the_caller_may_be_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open(greeting="Hello", first_speaker="caller")
            frames = await talk(session, user_frames(4))
            session.release()
            frames += await more(session, 3)
            await session.aclose()
        assert [frame.tokens[0] for frame in frames[:6]] == [0] * 5 + given("Hello")

    asyncio.run(run())


def test_words_are_said_in_order_and_their_end_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            neighbour = await running.open(seed=2)
            await talk(session, user_frames(3))
            first, second = session.say("Your table is ready."), session.say("Goodbye, Zoë. 😀")
            frames = await more(session, 2)
            assert not first.done()
            frames += await more(session, 8)
            assert await first and await second
            expected = given("Your table is ready.") + given("Goodbye, Zoë. 😀")
            texts = [frame.tokens[0] for frame in frames]
            assert texts[: len(expected)] == expected
            assert said(await talk(neighbour, user_frames(9))) == expected_talk(
                user_frames(9), seed=2
            )
            await session.aclose()
            await neighbour.aclose()

    asyncio.run(run())


def test_words_that_cannot_be_said_are_refused_and_the_talk_goes_on(tmp_path: Path) -> None:
    frames = user_frames(5)

    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            refusals = [session.say("unspeakable"), session.say("word " * 21)]
            assert said(await talk(session, frames)) == expected_talk(frames)
            for refusal, reason in zip(refusals, ("cannot be said", "too many words"), strict=True):
                with pytest.raises(ConfigError, match=reason):
                    await refusal
            with pytest.raises(ConfigError, match="4096 bytes of UTF-8, got 4097; shorten it"):
                session.say("x" * 4097)
            with pytest.raises(ConfigError, match="surrogate"):
                session.say("\ud800")
            later = session.say("fine")
            await more(session, 2)
            assert await later
            await session.aclose()

    asyncio.run(run())


def test_words_may_be_taken_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            await session.receive()
            saying = session.say("one two three four five six")
            frames = await more(session, 2)
            session.stop_saying()
            frames += await more(session, 4)
            assert not await saying
            assert [frame.tokens[0] for frame in frames[:2]] == given("one two")
            assert frames[3].tokens[0] not in given("three four five six")
            await session.aclose()

    asyncio.run(run())


def test_the_end_of_a_session_ends_what_it_was_to_say(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            sayings = [session.say("hello") for _ in range(MAX_WAITING_TEXTS)]
            with pytest.raises(ConfigError, match="64 texts wait"):
                session.say("hello")
            await session.aclose()
            assert not any([await saying for saying in sayings])
            for late in (lambda: session.say("hello"), session.stop_saying, session.release):
                with pytest.raises(SessionClosedError):
                    late()

    asyncio.run(run())


def test_a_client_that_does_not_wait_for_ready_is_told_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(prompt_ticks=3), tmp_path) as running:
            replies = await converse_raw(running, [pack_request(SayRequest(1, "hello"))])
            assert "come after ready" in replies[-1]
            await running.wait_unused()

    asyncio.run(run())


def test_a_text_over_the_limit_from_any_client_is_refused_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            messages = [
                json.dumps({"type": "say", "id": 5, "text": "x" * 5000}),
                json.dumps({"type": "say", "id": 6, "text": "\ud800"}),
                pack_request(SayRequest(7, "hello")),
                pack_user_frame(UserFrame(0, user_frames(1)[0])),
                '{"type":"close"}',
            ]
            replies = await converse_raw(running, messages, after_ready=True)
            told = [unpack_reply(reply) for reply in replies]
            refused = [reply.number for reply in told if isinstance(reply, Refused)]
            assert refused == [5, 6]
            assert type(told[-1]).__name__ == "Closed"

    asyncio.run(run())


def test_a_recording_keeps_what_was_asked_and_when(tmp_path: Path) -> None:
    async def run() -> None:
        folder = tmp_path / "records"
        async with running_engine(FakeCore(), tmp_path, record_dir=folder) as running:
            session = await running.open(greeting="Hi", first_speaker="caller")
            await talk(session, user_frames(2))
            session.release()
            session.say("Zoë")
            await more(session, 2)
            session.stop_saying()
            await more(session, 1)
            await session.aclose()
        (path,) = folder.iterdir()
        with safe_open(path, "np") as file:  # type: ignore[no-untyped-call]
            steering = json.loads(file.metadata()["steering"])
        expected = [
            [0, "hold", ""],
            [0, "say", "Hi"],
            [3, "release", ""],
            [3, "say", "Zoë"],
            [6, "stop_saying", ""],
        ]
        assert steering == expected

    asyncio.run(run())


async def more(session: EngineSession, count: int) -> list[AgentFrame]:
    """Send silence and take what comes, with one frame more: answers follow their frame."""
    frames = []
    for _ in range(count + 1):
        session.send_frame(bytes(3840))
        frames.append(await session.receive())
    return frames


async def converse_raw(
    running: RunningEngine, messages: list[str | bytes], *, after_ready: bool = False
) -> list[str]:
    """Open a session by hand, send messages, and collect the engine's control messages."""
    connector = aiohttp.UnixConnector(path=running.address.unix_path)
    replies: list[str] = []
    async with aiohttp.ClientSession(connector=connector) as http:
        async with http.ws_connect(running.address.url("/v1/session")) as ws:
            await ws.send_str(pack_request(OpenRequest(**OPEN)))  # type: ignore[arg-type]
            if after_ready:
                replies.append((await ws.receive()).data)
            for message in messages:
                if isinstance(message, bytes):
                    await ws.send_bytes(message)
                else:
                    await ws.send_str(message)
            async for reply in ws:
                if reply.type is aiohttp.WSMsgType.TEXT:
                    replies.append(reply.data)
    return replies
