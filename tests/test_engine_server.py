"""The engine behind its socket, on a fake core: opening, talking, leaving, failing."""

import asyncio
import json
import os
import random
import socket
import stat
import threading
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from safetensors import safe_open

from livekit_personaplex.engine.listen_socket import ListenSocket
from livekit_personaplex.errors import (
    CapacityError,
    ConfigError,
    EngineDiedError,
    EngineError,
    SessionClosedError,
)
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats, fetch_voices
from livekit_personaplex.wire.http import measure_persona
from tests.engine_harness import RunningEngine, running_engine, said, talk, wait_for
from tests.fakes import FakeCore, expected_talk, user_frames


def test_a_session_hears_its_own_conversation_in_order(tmp_path: Path) -> None:
    frames = user_frames(20)

    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open(persona="You are Ann.", seed=5)
            received = await talk(session, frames)
            await session.aclose()
        assert said(received) == expected_talk(frames, persona="You are Ann.", seed=5)
        assert [frame.step for frame in received] == list(range(21))
        assert [frame.heard for frame in received] == [None, *range(20)]
        assert (session.seed, session.prompt_steps) == (5, 10)
        assert 0 < session.open_ms < 5000

    asyncio.run(run())


def test_two_sessions_at_once_do_not_mix(tmp_path: Path) -> None:
    ann_frames, bob_frames = user_frames(30, seed=1), user_frames(30, seed=2)

    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            ann, bob = await asyncio.gather(
                running.open(voice="ANN", seed=1), running.open(voice="BOB", seed=2)
            )
            received = await asyncio.gather(talk(ann, ann_frames), talk(bob, bob_frames))
            await asyncio.gather(ann.aclose(), bob.aclose())
        assert said(received[0]) == expected_talk(ann_frames, voice="ANN", seed=1)
        assert said(received[1]) == expected_talk(bob_frames, voice="BOB", seed=2)

    asyncio.run(run())


def test_a_seed_is_drawn_and_reported_when_none_is_given(tmp_path: Path) -> None:
    frames = user_frames(3)

    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            first, second = await running.open(seed=None), await running.open(seed=None)
            assert first.seed != second.seed
            assert said(await talk(first, frames)) == expected_talk(frames, seed=first.seed)
            await first.aclose()
            await second.aclose()

    asyncio.run(run())


def test_a_full_engine_refuses_at_once_and_takes_the_next_after_a_goodbye(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(num_slots=2), tmp_path) as running:
            first, second = await running.open(), await running.open()
            with pytest.raises(CapacityError, match="all 2 slots"):
                await running.open()
            await first.aclose()
            third = await running.open()
            stats = await fetch_stats(running.address)
            assert (stats.used, stats.opened, stats.refused) == (2, 3, 1)
            await second.aclose()
            await third.aclose()

    asyncio.run(run())


def test_a_full_engine_refuses_while_the_others_still_prepare(tmp_path: Path) -> None:
    may_prepare = threading.Event()
    core = FakeCore(num_slots=1, on_prepare=lambda: assert_event(may_prepare))

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            first = asyncio.create_task(running.open())
            await wait_for(lambda: running.engine.stats().used == 1)
            with pytest.raises(CapacityError):
                await running.open()
            may_prepare.set()
            await (await first).aclose()

    asyncio.run(run())


def test_an_unknown_voice_is_refused_with_the_list_and_its_slot_is_free(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(num_slots=1), tmp_path) as running:
            with pytest.raises(ConfigError, match="unknown voice 'NOVA'; known are ANN, BOB"):
                await running.open(voice="NOVA")
            await running.wait_unused()
            assert running.engine.stats().refused == 1
            await (await running.open()).aclose()

    asyncio.run(run())


def test_preparing_a_prompt_does_not_hold_up_a_talk(tmp_path: Path) -> None:
    may_prepare = threading.Event()
    core, frames = FakeCore(), user_frames(10)

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            ann = await running.open()
            core.on_prepare = lambda: assert_event(may_prepare)
            opening = asyncio.create_task(running.open())
            await wait_for(lambda: running.engine.stats().used == 2)
            assert said(await talk(ann, frames)) == expected_talk(frames)
            assert not opening.done()
            may_prepare.set()
            await (await opening).aclose()
            await ann.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["preparing", "prompting", "live", "mid-tick"])
def test_a_client_that_vanishes_gives_its_slot_back(tmp_path: Path, moment: str) -> None:
    gate = threading.Event()
    core = FakeCore(num_slots=1, prompt_ticks=10**9 if moment == "prompting" else 1)
    if moment == "preparing":
        core.on_prepare = lambda: assert_event(gate)

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            opening = asyncio.create_task(running.open())
            if moment in ("live", "mid-tick"):
                session = await opening
                await session.receive()
                if moment == "mid-tick":
                    core.on_tick = lambda tick: assert_event(gate)
                    session.send_frame(user_frames(1)[0])
                    await wait_for(lambda: running.engine._thread.busy_s > 0)
                session._ws._response.close()  # the connection drops, without a goodbye
            else:
                await wait_for(lambda: running.engine.stats().used == 1)
                if moment == "prompting":
                    await wait_for(lambda: core.num_ticks > 3)
                opening.cancel()
            if moment == "mid-tick":
                await asyncio.sleep(0.05)
                assert running.engine.stats().used == 1, "freed under a tick in flight"
                gate.set()
            await running.wait_unused()
            gate.set()
            core.prompt_ticks = 1
            await (await running.open()).aclose()
            assert running.engine.stats().used == 0
            if moment in ("live", "mid-tick"):
                await session.aclose()

    asyncio.run(run())


def test_a_call_that_leaves_before_its_prompt_is_laid_out_never_reaches_the_core(
    tmp_path: Path,
) -> None:
    may_prepare = threading.Event()
    core = FakeCore(num_slots=1, on_prepare=lambda: assert_event(may_prepare))

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            opening = asyncio.create_task(running.open())
            await wait_for(lambda: running.engine.stats().used == 1)
            opening.cancel()
            await running.wait_unused()
            core.on_prepare = lambda: None
            session = await running.open(persona="the second")
            may_prepare.set()
            await talk(session, user_frames(3))
            await session.aclose()
        assert [plan.text for plan in core.opened_plans] == [b"ANN/the second"]

    asyncio.run(run())


def test_closing_is_over_when_it_returns_and_counts_what_was_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(num_slots=1), tmp_path) as running:
            for _ in range(20):
                session = await running.open()
                await talk(session, user_frames(2))
                await session.aclose()
                assert running.engine.stats().used == 0
            stats = running.engine.stats()
            assert (stats.opened, stats.agent_frames, stats.failed) == (20, 60, 0)

    asyncio.run(run())


def test_a_hundred_calls_that_come_and_go_at_random_hear_their_own_conversation_each(
    tmp_path: Path,
) -> None:
    dice, core = random.Random(4), FakeCore(num_slots=4, prompt_ticks=3)

    async def call(running: RunningEngine, index: int, door: asyncio.Semaphore) -> None:
        frames = user_frames(dice.randrange(12), seed=index)
        async with door:
            session = await running.open(persona=f"caller {index}", seed=index)
            received = await talk(session, frames)
            await session.aclose()
        assert said(received) == expected_talk(frames, persona=f"caller {index}", seed=index)

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            door = asyncio.Semaphore(4)
            await asyncio.gather(*(call(running, index, door) for index in range(100)))
            stats = running.engine.stats()
            assert (stats.opened, stats.refused, stats.used, stats.failed) == (100, 0, 0, 0)

    asyncio.run(run())


def test_a_backlog_keeps_the_newest_frames_and_the_client_sees_which(tmp_path: Path) -> None:
    gate, frames = threading.Event(), user_frames(10)
    core = FakeCore()

    async def run() -> None:
        async with running_engine(core, tmp_path, max_backlog_frames=3) as running:
            session = await running.open()
            await session.receive()
            core.on_tick = lambda tick: assert_event(gate)
            session.send_frame(frames[0])
            await wait_for(lambda: running.engine._thread.busy_s > 0)
            for pcm in frames[1:]:
                session.send_frame(pcm)
            await wait_for(lambda: running.engine.stats().dropped_frames == 6)
            assert running.engine.stats().backlog_frames == 3
            gate.set()
            received = [await session.receive() for _ in range(4)]
            assert [frame.heard for frame in received] == [0, 7, 8, 9]
            heard = [frames[0], *frames[7:]]
            assert said(received).tokens == expected_talk(heard).tokens[1:]
            await session.aclose()

    asyncio.run(run())


def test_a_tick_that_raises_tells_every_session_and_fails_the_engine(tmp_path: Path) -> None:
    core = FakeCore()

    def break_down(tick: int) -> None:
        raise RuntimeError("device lost")

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            ann, bob = await running.open(), await running.open()
            await asyncio.gather(ann.receive(), bob.receive())
            core.on_tick = break_down
            ann.send_frame(user_frames(1)[0])
            for session in (ann, bob):
                with pytest.raises(EngineDiedError, match="the engine failed"):
                    await session.receive()
            await asyncio.wait_for(running.engine.failed.wait(), 20.0)
            assert str(running.engine.failure) == "device lost"
            with pytest.raises(EngineError, match="not ready"):
                await running.open()
            assert await health_status(running) == 503
            assert not (await fetch_stats(running.address)).ready
            await ann.aclose()
            await bob.aclose()

    asyncio.run(run())


def test_a_tick_that_hangs_tells_every_session_and_fails_the_engine(tmp_path: Path) -> None:
    gate = threading.Event()
    core = FakeCore()

    async def run() -> None:
        async with running_engine(core, tmp_path, tick_timeout_s=0.5) as running:
            session = await running.open()
            await session.receive()
            core.on_tick = lambda tick: assert_event(gate)
            session.send_frame(user_frames(1)[0])
            with pytest.raises(EngineDiedError):
                await session.receive()
            assert "longer than 0.5 s" in str(running.engine.failure)
            gate.set()
            await session.aclose()

    asyncio.run(run())


def test_a_session_that_cannot_be_delivered_costs_itself_only(tmp_path: Path) -> None:
    core, frames = FakeCore(), user_frames(5)

    class BrokenDecoder:
        def push(self, token: int) -> str:
            raise UnicodeError("no such token")

    async def run() -> None:
        async with running_engine(core, tmp_path) as running:
            ann = await running.open()
            core.text_decoder = BrokenDecoder
            bob = await running.open()
            with pytest.raises(EngineError, match="this session failed inside the engine"):
                await bob.receive()
            assert said(await talk(ann, frames)) == expected_talk(frames)
            await wait_for(lambda: running.engine.stats().used == 1)
            assert running.engine.stats().failed == 1
            await ann.aclose()
            await bob.aclose()

    asyncio.run(run())


def test_an_engine_that_stops_says_goodbye(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open()
            await session.receive()
            ending = asyncio.create_task(session.receive())
            await asyncio.sleep(0)
        with pytest.raises(SessionClosedError, match="shutting down"):
            await ending
        await session.aclose()
        with pytest.raises(EngineDiedError, match="no engine answers at unix:"):
            await running.open()

    asyncio.run(run())


def test_voices_lengths_health_and_counters_are_told_over_http(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            assert await fetch_voices(running.address) == ["ANN", "BOB"]
            length = await measure_persona("Ünder", running.address)
            assert (length.tokens, length.max_tokens, length.window) == (5, 2_000, 3_000)
            assert await health_status(running) == 200
            session = await running.open()
            await talk(session, user_frames(4))
            stats = await fetch_stats(running.address)
            await session.aclose()
        assert stats.ready and (stats.slots, stats.used) == (2, 1)
        assert (stats.ticks, stats.agent_frames, stats.backlog_frames) == (6, 5, 0)
        assert 0 < stats.tick_p50_ms <= stats.tick_p99_ms <= stats.tick_max_ms < 1000

    asyncio.run(run())


def test_tcp_asks_for_its_token_everywhere_but_at_the_health_check(tmp_path: Path) -> None:
    async def run() -> None:
        core = FakeCore()
        async with running_engine(core, tmp_path, listen="127.0.0.1:0", token="s3") as running:
            for token in (None, "", "s33", "S3"):
                with pytest.raises(ConfigError, match="refused the token"):
                    await running.open(token=token)
                with pytest.raises(ConfigError, match="refused the token"):
                    await fetch_stats(running.address, token=token)
            assert await health_status(running) == 200
            for header in (b"s3", b"Bearer \xff\xfe", b"bearer s3", b"Basic s3"):
                assert b"401 Unauthorized" in await raw_request(running, header)
            assert b"200 OK" in await raw_request(running, b"Bearer s3")
            session = await running.open(token="s3")
            assert len(await talk(session, user_frames(2))) == 3
            await session.aclose()
            assert (await fetch_stats(running.address, token="s3")).opened == 1

    asyncio.run(run())


def test_recordings_hold_what_was_heard_and_said(tmp_path: Path) -> None:
    frames, folder = user_frames(6), tmp_path / "recordings"

    async def run() -> EngineSession:
        async with running_engine(FakeCore(), tmp_path, record_dir=folder) as running:
            session = await running.open(persona="Zoë", seed=3)
            await talk(session, frames)
            await session.aclose()
            unheard = await running.open()
            await unheard.aclose()
        return session

    session = asyncio.run(run())
    path = folder / f"{session.session_id}.safetensors"
    assert sorted(path.suffix for path in folder.iterdir()) == [".safetensors"] * 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with safe_open(path, "numpy") as recording:
        heard, tokens = recording.get_tensor("frames"), recording.get_tensor("tokens")
        pcm = recording.get_tensor("pcm")
        metadata = recording.metadata()
    assert [frame.tobytes() for frame in heard] == frames
    expected = expected_talk(frames, persona="Zoë", seed=3)
    assert np.array_equal(tokens, np.array(expected.tokens).T)
    assert [frame.tobytes() for frame in pcm] == expected.pcm
    assert (metadata["voice"], metadata["persona"]) == ("ANN", "Zoë")
    assert json.loads(metadata["sampling"])["seed"] == 3


def test_a_recording_that_cannot_be_written_is_logged_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    async def run() -> None:
        record_dir = tmp_path / "file" / "folder"
        async with running_engine(FakeCore(), tmp_path, record_dir=record_dir) as running:
            await (await running.open()).aclose()
            await (await running.open()).aclose()

    asyncio.run(run())
    assert caplog.text.count("a recording could not be written") == 2


def test_a_unix_socket_is_for_its_owner_and_goes_with_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "private" / "engine.sock"
    listen_socket = ListenSocket(EngineAddress(unix_path=str(path)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    listen_socket.close()
    assert not path.parent.exists()


def test_a_socket_that_a_dead_engine_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listen_socket = ListenSocket(EngineAddress(unix_path=str(path)))
    listen_socket.close()
    assert not path.exists() and tmp_path.exists()


def test_a_path_that_is_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ConfigError, match="an engine listens there"):
            ListenSocket(EngineAddress(unix_path=str(path)))
        assert path.is_socket()
    path.unlink()
    path.write_text("notes")
    with pytest.raises(ConfigError, match="not a socket"):
        ListenSocket(EngineAddress(unix_path=str(path)))
    assert path.read_text() == "notes"


def test_an_engine_does_not_remove_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    first = ListenSocket(EngineAddress(unix_path=str(path)))
    os.unlink(path)
    second = ListenSocket(EngineAddress(unix_path=str(path)))
    first.close()
    assert path.is_socket()
    second.close()
    assert not path.exists()


@pytest.mark.parametrize("listen", ["unix:/proc/nowhere/engine.sock", "203.0.113.7:1"])
def test_an_address_that_cannot_be_bound_is_said(listen: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        ListenSocket(EngineAddress.parse(listen))


async def health_status(running: RunningEngine) -> int:
    """Ask for the health with no token and nothing of our client."""
    if running.address.is_unix:
        connector: aiohttp.BaseConnector = aiohttp.UnixConnector(running.address.unix_path)
    else:
        connector = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector) as http:
        async with http.get(running.address.url("/health")) as response:
            assert (await response.json())["ready"] == (response.status == 200)
            return response.status


async def raw_request(running: RunningEngine, authorization: bytes) -> bytes:
    """Ask for the counters with a header that no client of ours would send."""
    reader, writer = await asyncio.open_connection(running.address.host, running.address.port)
    writer.write(b"GET /stats HTTP/1.1\r\nHost: e\r\nConnection: close\r\nAuthorization: ")
    writer.write(authorization + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 20.0)
    writer.close()
    return answer


def assert_event(event: threading.Event) -> None:
    assert event.wait(20.0)
