"""Clients that break every rule: each costs its own connection, and its neighbour hears nothing.

Every test talks beside its attack: a well-behaved session whose frames must all come, and be exact.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType

from livekit_personaplex.audio import FRAME_BYTES
from livekit_personaplex.engine import connection, server
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.frames import pack_user_frame
from livekit_personaplex.wire.http import make_http_session
from livekit_personaplex.wire.protocol import (
    MAX_MESSAGE_BYTES,
    SESSION_PATH,
    CloseRequest,
    ErrorReport,
    OpenRequest,
    Ready,
    UserFrame,
    pack_request,
    unpack_reply,
)
from tests.engine_harness import RunningEngine, running_engine, said, wait_for
from tests.fakes import FakeCore, expected_talk, user_frames

NUM_RANDOM_MESSAGES = 10_000
SILENCE = bytes(FRAME_BYTES)
OPEN = pack_request(OpenRequest(voice="BOB", persona="", sampling=Sampling(seed=9)))
FRAME = pack_user_frame(UserFrame(0, SILENCE))


@asynccontextmanager
async def attacked_engine(folder: Path, *, num_slots: int = 2) -> AsyncIterator[RunningEngine]:
    """An engine with a neighbour who talks all the while; checks what the neighbour heard."""
    async with running_engine(FakeCore(num_slots=num_slots), folder) as running:
        neighbour = await running.open()
        is_over, frames = False, user_frames(20)
        sent, received = [], [await neighbour.receive()]

        async def talk_on() -> None:
            while not is_over or len(sent) < 20:
                sent.append(frames[len(sent) % 20])
                neighbour.send_frame(sent[-1])
                received.append(await asyncio.wait_for(neighbour.receive(), 20.0))
                await asyncio.sleep(0.002)

        talking = asyncio.create_task(talk_on())
        try:
            yield running
            await wait_for(lambda: running.engine.stats().used == 1)
        finally:
            is_over = True
            await talking
        assert said(received) == expected_talk(sent)
        assert running.engine.is_ready
        await neighbour.aclose()


class RawClient:
    """A WebSocket without any manners."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def send(self, message: str | bytes) -> None:
        await (
            self.ws.send_str(message) if isinstance(message, str) else self.ws.send_bytes(message)
        )

    async def expect_ready(self) -> None:
        assert isinstance(unpack_reply(await self.ws.receive_str(timeout=20.0)), Ready)

    async def expect_error(self, code: str) -> str:
        """Read on to the error message, and to the end that follows; gives its text."""
        report = None
        async for message in self.ws:
            if message.type is WSMsgType.TEXT:
                report = unpack_reply(message.data)
        assert isinstance(report, ErrorReport) and report.code == code, report
        return report.message


@asynccontextmanager
async def raw_client(running: RunningEngine) -> AsyncIterator[RawClient]:
    async with make_http_session(running.address, None) as http:
        async with http.ws_connect(running.address.url(SESSION_PATH), max_msg_size=0) as ws:
            yield RawClient(ws)


async def read_to_end(client: RawClient) -> None:
    async for _ in client.ws:
        pass


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        FRAME,
        b"",
        pack_request(CloseRequest()),
        "[" * 100_000,
        '{"type":"open"}',
        OPEN.replace('"version":1', '"version":2'),
        OPEN.replace('"seed":9', '"seed":NaN'),
        OPEN.replace('"seed":9', '"seed":' + "9" * 10_000),
        OPEN.replace('"text_top_k":25', '"text_top_k":' + "9" * 400),
        OPEN.replace("}}", '},"slot":0}'),
    ],
)
def test_a_first_message_that_is_no_open_ends_the_connection(
    tmp_path: Path, message: str | bytes
) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(message)
            await client.expect_error("protocol")
            assert running.engine.stats().used == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "change",
    [
        ('"voice":"BOB"', '"voice":"../../etc/passwd"'),
        ('"voice":"BOB"', '"voice":"BOB\\u0000"'),
        ('"voice":"BOB"', '"voice":"\\ud800"'),
        ('"persona":""', '"persona":"\\udfff"'),
        ('"persona":""', f'"persona":"{"x" * 40_000}"'),
        ('"seed":9', '"seed":-1'),
        ('"text_temperature":0.7', '"text_temperature":1e999'),
        ('"audio_top_k":250', '"audio_top_k":0'),
    ],
)
def test_an_open_that_cannot_be_used_is_refused_and_takes_no_slot(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN.replace(*change))
            await client.expect_error("config")
            assert running.engine.stats().refused == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "messages",
    [
        [OPEN],
        ["{}"],
        ['{"type":"close","now":true}'],
        ['{"type":"ready","session":"a","seed":1,"prompt_steps":1,"open_ms":1}'],
        [b""],
        [FRAME[:-1]],
        [FRAME + b"\0"],
        [b"\2" + FRAME[1:]],
        [FRAME, FRAME],
        [pack_user_frame(UserFrame(7, SILENCE)), pack_user_frame(UserFrame(6, SILENCE))],
    ],
    ids=str,
)
@pytest.mark.parametrize("waits_for_ready", [True, False])
def test_a_later_message_that_breaks_the_protocol_ends_the_session(
    tmp_path: Path, messages: list[str | bytes], waits_for_ready: bool
) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN)
            if waits_for_ready:
                await client.expect_ready()
            for message in messages:
                await client.send(message)
            await client.expect_error("protocol")

    asyncio.run(run())


def test_an_oversized_message_ends_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN)
            await client.expect_ready()
            await client.send(json.dumps({"type": "close", "why": "x" * MAX_MESSAGE_BYTES}))
            await read_to_end(client)
            assert client.ws.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG

    asyncio.run(run())


def test_ten_thousand_random_messages_cost_nobody_else_anything(tmp_path: Path) -> None:
    dice = random.Random(11)

    def random_message() -> str | bytes:
        kind = dice.randrange(8)
        if kind == 0:
            return dice.randbytes(dice.randrange(200))
        if kind == 1:
            return dice.randbytes(len(FRAME))
        if kind == 2:
            return b"\1\0\0\0" + dice.randbytes(4) + SILENCE
        if kind == 3:
            return "".join(chr(dice.randrange(32, 0xD7FF)) for _ in range(dice.randrange(60)))
        if kind == 4:
            text = list(OPEN)
            text[dice.randrange(len(text))] = chr(dice.randrange(32, 127))
            return "".join(text)
        return dice.choice([OPEN, pack_request(CloseRequest()), FRAME, "[[[[", "{}", ""])

    async def attack(running: RunningEngine) -> int:
        """Send random messages on one connection until the engine ends it; gives their number."""
        async with raw_client(running) as client:
            ending = asyncio.create_task(read_to_end(client))
            count = 0
            while not ending.done():
                try:
                    await client.send(random_message() if count or dice.random() < 0.5 else OPEN)
                except ConnectionError:
                    break
                count += 1
                await asyncio.sleep(0)
            await ending
            return count

    async def run() -> None:
        num_messages = 0
        async with attacked_engine(tmp_path) as running:
            while num_messages < NUM_RANDOM_MESSAGES:
                num_messages += sum(await asyncio.gather(*(attack(running) for _ in range(8))))

    asyncio.run(run())


def test_a_reader_that_does_not_read_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FLUSH_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server, "GOODBYE_TIMEOUT_S", 0.1)

    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN)
            await client.expect_ready()
            number = 0
            while running.engine.stats().used == 2:
                assert number < 10_000, "it is never cut off"
                try:
                    await client.send(pack_user_frame(UserFrame(number, SILENCE)))
                except ConnectionError:
                    break
                number += 1
                await asyncio.sleep(0.0005)
            await wait_for(lambda: running.engine.stats().used == 1)
            assert running.engine.stats().failed == 1

    asyncio.run(run())


def test_a_slow_reader_that_wakes_up_is_told_why(tmp_path: Path) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN)
            await client.expect_ready()
            for number in range(10_000):
                await client.send(pack_user_frame(UserFrame(number, SILENCE)))
                await asyncio.sleep(0.0005)
                if running.engine.stats().used == 1:
                    break
            assert "read them as they come" in await client.expect_error("slow")

    asyncio.run(run())


def test_a_client_that_sends_faster_than_time_loses_its_own_frames_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            await client.send(OPEN)
            await client.expect_ready()

            reading = asyncio.create_task(read_to_end(client))
            for number in range(3_000):
                await client.send(pack_user_frame(UserFrame(number, SILENCE)))
            await client.send(pack_request(CloseRequest()))
            await asyncio.wait_for(reading, 20.0)
            assert running.engine.stats().backlog_frames <= 1

    asyncio.run(run())


@pytest.mark.parametrize("is_open", [True, False])
def test_a_half_open_connection_is_found_out_by_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    monkeypatch.setattr(server, "HEARTBEAT_S", 0.2)

    async def run() -> None:
        async with attacked_engine(tmp_path) as running:
            reader, writer = await asyncio.open_unix_connection(running.address.unix_path)
            writer.write(
                f"GET {SESSION_PATH} HTTP/1.1\r\nHost: engine\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
            )
            assert b"101 Switching Protocols" in await reader.readuntil(b"\r\n\r\n")
            if is_open:
                masked = OPEN.encode()  # masked with zeros
                header = bytes([0x81, 0x80 | 126, *len(masked).to_bytes(2, "big"), 0, 0, 0, 0])
                writer.write(header + masked)
                await wait_for(lambda: running.engine.stats().used == 2)
                await wait_for(lambda: running.engine.stats().used == 1)
            assert len(await asyncio.wait_for(reader.read(), 20.0)) < 10_000
            writer.close()

    asyncio.run(run())


def test_a_connection_that_never_opens_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OPEN_TIMEOUT_S", 0.1)

    async def run() -> None:
        async with attacked_engine(tmp_path) as running, raw_client(running) as client:
            assert "expected open within 0.1 s" in await client.expect_error("protocol")

    asyncio.run(run())


def test_bytes_that_are_no_http_are_hung_up_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with attacked_engine(tmp_path) as running:
            for garbage in (b"\0" * 1000, b"GET " + b"/" * 100_000, b"\x16\x03\x01\x02\x00\x01"):
                reader, writer = await asyncio.open_unix_connection(running.address.unix_path)
                writer.write(garbage + b"\r\n\r\n")
                try:
                    await asyncio.wait_for(reader.read(), 20.0)
                except ConnectionError:
                    pass
                writer.close()

    asyncio.run(run())


def test_a_crowd_that_leaves_at_any_moment_leaves_no_slot_taken(tmp_path: Path) -> None:
    dice = random.Random(2)

    async def visit(running: RunningEngine) -> None:
        async with raw_client(running) as client:
            await client.send(OPEN)
            await asyncio.sleep(dice.random() * 0.01)
            if dice.random() < 0.5:
                await client.send(FRAME)
            if dice.random() < 0.5:
                client.ws._response.close()

    async def run() -> None:
        async with attacked_engine(tmp_path, num_slots=6) as running:
            for _ in range(20):
                await asyncio.gather(*(visit(running) for _ in range(12)))

    asyncio.run(run())
