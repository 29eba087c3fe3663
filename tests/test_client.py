"""A call's side of the wire against engines that behave, refuse, stall, lie and die."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from livekit_personaplex.audio import FRAME_BYTES
from livekit_personaplex.errors import (
    EngineDiedError,
    EngineError,
    ProtocolError,
    SessionClosedError,
)
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire import client
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats, fetch_voices
from livekit_personaplex.wire.frames import pack_agent_frame, unpack_user_frame
from livekit_personaplex.wire.protocol import (
    SESSION_PATH,
    AgentFrame,
    Closed,
    OpenRequest,
    Ready,
    pack_reply,
)
from tests.engine_harness import running_engine, said, talk, wait_for
from tests.fakes import FakeCore, expected_talk, user_frames

REQUEST = OpenRequest(voice="ANN", persona="", sampling=Sampling(seed=1))
READY = pack_reply(Ready("a", 1, 2, 3.0))
SILENCE = bytes(FRAME_BYTES)

Behaviour = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def scripted_engine(folder: Path, behave: Behaviour) -> AsyncIterator[EngineAddress]:
    """An engine that does what a test says once it has got the client's open."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(timeout=0.05)
        await ws.prepare(request)
        await ws.receive()
        await behave(ws)
        return ws

    app = web.Application()
    app.router.add_get(SESSION_PATH, serve)
    runner = web.AppRunner(app, shutdown_timeout=0.05)
    await runner.setup()
    path = folder / "scripted.sock"
    await web.UnixSite(runner, str(path)).start()
    try:
        yield EngineAddress(unix_path=str(path))
    finally:
        await runner.cleanup()


async def stall(ws: web.WebSocketResponse) -> None:
    """Say ready, then nothing, and read nothing."""
    await ws.send_str(READY)
    await asyncio.Event().wait()


@pytest.mark.parametrize("address", ["unix:{folder}/none.sock", "127.0.0.1:9"])
def test_an_engine_that_is_not_there_is_said_at_once(tmp_path: Path, address: str) -> None:
    where = EngineAddress.parse(address.format(folder=tmp_path))

    async def run() -> None:
        with pytest.raises(EngineDiedError, match="no engine answers at"):
            await EngineSession.open(where, REQUEST)
        with pytest.raises(EngineDiedError, match="no engine answers at"):
            await fetch_stats(where)

    asyncio.run(run())


def test_another_server_is_no_engine(tmp_path: Path) -> None:
    async def run() -> None:
        async def unused(ws: web.WebSocketResponse) -> None:
            return

        async with scripted_engine(tmp_path, unused) as address:
            with pytest.raises(ProtocolError, match="HTTP status 404"):
                await fetch_voices(address)

    asyncio.run(run())


def test_a_server_that_speaks_no_http_is_no_engine(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org\r\n")
        writer.close()

    async def run() -> None:
        path = str(tmp_path / "mail.sock")
        server = await asyncio.start_unix_server(hang_up, path)
        with pytest.raises(ProtocolError, match="expected an engine of this package"):
            await EngineSession.open(EngineAddress(unix_path=path), REQUEST)
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def test_an_opening_that_takes_too_long_is_given_up_and_its_slot_comes_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(prompt_ticks=10**9), tmp_path) as running:
            with pytest.raises(EngineError, match="did not open a session within 0.1 s"):
                await running.open(timeout_s=0.1)
            await running.wait_unused()

    asyncio.run(run())


def test_a_waiting_receive_ends_when_the_session_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            await session.receive()
            receiving = asyncio.create_task(session.receive())
            await asyncio.sleep(0.01)
            await asyncio.gather(session.aclose(), session.aclose())
            with pytest.raises(SessionClosedError):
                await receiving
            with pytest.raises(SessionClosedError):
                await session.receive()
            with pytest.raises(SessionClosedError):
                session.send_frame(SILENCE)
            await session.aclose()

    asyncio.run(run())


def test_a_cancelled_receive_loses_no_frame(tmp_path: Path) -> None:
    frames = user_frames(30)

    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            received = []
            for pcm in [None, *frames]:
                if pcm is not None:
                    session.send_frame(pcm)
                frame = None
                while frame is None:
                    try:
                        frame = await asyncio.wait_for(session.receive(), 0.0002)
                    except asyncio.TimeoutError:
                        continue
                received.append(frame)
            assert said(received) == expected_talk(frames)
            await session.aclose()

    asyncio.run(run())


def test_an_engine_that_vanishes_ends_the_session(tmp_path: Path) -> None:
    async def vanish(ws: web.WebSocketResponse) -> None:
        await ws.send_str(READY)
        assert ws._req is not None and ws._req.transport is not None
        ws._req.transport.abort()

    async def run() -> None:
        async with scripted_engine(tmp_path, vanish) as address:
            session = await EngineSession.open(address, REQUEST)
            with pytest.raises(EngineDiedError, match="without a goodbye"):
                await session.receive()
            with pytest.raises(SessionClosedError):
                session.send_frame(SILENCE)
            with pytest.raises(EngineDiedError):
                await session.receive()
            await session.aclose()

    asyncio.run(run())


def test_a_frozen_engine_is_found_out_by_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HEARTBEAT_S", 0.1)

    async def run() -> None:
        async with scripted_engine(tmp_path, stall) as address:
            session = await EngineSession.open(address, REQUEST)
            with pytest.raises(EngineDiedError):
                await asyncio.wait_for(session.receive(), 20.0)
            await session.aclose()

    asyncio.run(run())


def test_closing_towards_a_frozen_engine_takes_less_than_two_seconds(tmp_path: Path) -> None:
    async def run() -> None:
        async with scripted_engine(tmp_path, stall) as address:
            session = await EngineSession.open(address, REQUEST)
            began_s = time.monotonic()
            await session.aclose()
            assert time.monotonic() - began_s < 2.0

    asyncio.run(run())


def test_sending_never_blocks_and_a_stalled_engine_costs_the_oldest_frames(tmp_path: Path) -> None:
    may_read, numbers = asyncio.Event(), []

    async def read_late(ws: web.WebSocketResponse) -> None:
        await ws.send_str(READY)
        await may_read.wait()
        async for message in ws:
            numbers.append(unpack_user_frame(message.data).number)
            if numbers[-1] == 999:
                await ws.send_str(pack_reply(Closed(0, 0)))
                return

    async def run() -> None:
        async with scripted_engine(tmp_path, read_late) as address:
            session = await EngineSession.open(address, REQUEST)
            for _ in range(100):
                for _ in range(10):
                    session.send_frame(SILENCE)
                await asyncio.sleep(0)
            may_read.set()
            with pytest.raises(SessionClosedError):
                await session.receive()
            await session.aclose()

    asyncio.run(run())
    assert len(numbers) < 500
    assert numbers == sorted(numbers)
    assert numbers[-client.MAX_UNSENT_FRAMES :] == list(range(1000))[-client.MAX_UNSENT_FRAMES :]


@pytest.mark.parametrize(
    "lie",
    [b"", b"\2" * 3870, "hello", READY, '{"type":"closed"}', '{"type":"error","code":"sad"}'],
    ids=["empty", "header", "no json", "ready twice", "fields", "code"],
)
def test_an_engine_that_breaks_the_protocol_ends_the_session(
    tmp_path: Path, lie: str | bytes
) -> None:
    async def break_rules(ws: web.WebSocketResponse) -> None:
        await ws.send_str(READY)
        await (ws.send_bytes(lie) if isinstance(lie, bytes) else ws.send_str(lie))
        await ws.receive()

    async def run() -> None:
        async with scripted_engine(tmp_path, break_rules) as address:
            session = await EngineSession.open(address, REQUEST)
            for _ in range(2):
                with pytest.raises(ProtocolError):
                    await session.receive()
            await session.aclose()

    asyncio.run(run())


def test_audio_before_ready_breaks_the_protocol(tmp_path: Path) -> None:
    async def hurry(ws: web.WebSocketResponse) -> None:
        await ws.send_bytes(pack_agent_frame(AgentFrame(0, SILENCE, "", tuple(range(9)))))

    async def run() -> None:
        async with scripted_engine(tmp_path, hurry) as address:
            with pytest.raises(ProtocolError, match="before it said ready"):
                await EngineSession.open(address, REQUEST)

    asyncio.run(run())


def test_sessions_leave_no_task_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            before = len(asyncio.all_tasks())
            for _ in range(5):
                session = await running.open()
                await talk(session, user_frames(2))
                await session.aclose()
            await wait_for(lambda: len(asyncio.all_tasks()) <= before)

    asyncio.run(run())
