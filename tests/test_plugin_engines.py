"""Several engines behind one worker: where calls go, what load is told, what one's death costs."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from livekit_personaplex.errors import (
    CapacityError,
    ConfigError,
    EngineDiedError,
    EngineError,
    EngineStartError,
)
from livekit_personaplex.plugin import engines as engines_module
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.engines import WorkerEngines
from livekit_personaplex.plugin.opening import open_session
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.settings import exported_to_jobs
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.error_reports import report_from_error
from livekit_personaplex.wire.protocol import ErrorReport, OpenRequest
from tests.engine_harness import wait_for
from tests.fake_engine import FakeEngine

TINY16 = Path(__file__).parent / "data" / "tiny16" / "checkpoint"
ANY_VOICE = PersonaPlexOptions()


class FullEngine(FakeEngine):
    """Has free slots when it is asked, and none when a call comes."""

    def _refusal(self, opened: OpenRequest) -> ErrorReport | None:
        return report_from_error(CapacityError(f"all {self.slots} slots are taken"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PERSONAPLEX_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(engines_module, "WATCH_INTERVAL_S", 0.02)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders for engines, which PERSONAPLEX_ENGINE names."""
    made = [tmp_path / "a", tmp_path / "b"]
    for folder in made:
        folder.mkdir()
    names = ",".join(f"unix:{folder}/engine.sock" for folder in made)
    monkeypatch.setenv("PERSONAPLEX_ENGINE", names)
    return made


def test_load_counts_the_slots_of_every_engine_that_is_ready(folders: list[Path]) -> None:
    async def scenario() -> None:
        capacity = Capacity()
        engines = WorkerEngines(capacity, answer_timeout_s=1.0)
        async with (
            FakeEngine(folders[0], slots=4) as first,
            FakeEngine(folders[1], slots=2),
            AsyncExitStack() as calls,
        ):
            await engines.start()
            watcher = asyncio.create_task(engines.watch())
            assert (capacity.num_slots, capacity.num_ready, capacity.load(set())) == (6, 2, 0.0)
            for _ in range(3):
                call = await open_session(ANY_VOICE, "")
                calls.push_async_callback(call.aclose)
            await wait_for(lambda: capacity.load(set()) == 0.5)
            first.is_ready = False
            await wait_for(lambda: capacity.num_slots == 2)
            first.is_ready = True
            await wait_for(lambda: capacity.num_slots == 6)
            watcher.cancel()

    asyncio.run(scenario())


def test_calls_go_where_most_slots_are_free(folders: list[Path]) -> None:
    async def scenario() -> None:
        async with (
            FakeEngine(folders[0], slots=2) as small,
            FakeEngine(folders[1], slots=5) as large,
            AsyncExitStack() as calls,
        ):
            for taken in [(0, 1), (0, 2), (0, 3)]:
                call = await open_session(ANY_VOICE, "")
                calls.push_async_callback(call.aclose)
                assert (small.used, large.used) == taken
            for _ in range(4):
                call = await open_session(ANY_VOICE, "")
                calls.push_async_callback(call.aclose)
            assert (small.used, large.used) == (2, 5)
            with pytest.raises(CapacityError, match="none of 2 engines.*all . slots.*all . slots"):
                await open_session(ANY_VOICE, "")

    asyncio.run(scenario())


def test_an_engine_that_is_full_by_the_time_a_call_comes_leaves_it_to_the_next(
    folders: list[Path],
) -> None:
    async def scenario() -> None:
        async with FullEngine(folders[0], slots=9) as full, FakeEngine(folders[1]) as other:
            call = await open_session(ANY_VOICE, "")
            assert (full.num_refused, other.used) == (1, 1)
            await call.aclose()

    asyncio.run(scenario())


def test_an_engine_that_is_gone_leaves_calls_to_the_next(folders: list[Path]) -> None:
    async def scenario() -> None:
        async with FakeEngine(folders[1]) as left:
            call = await open_session(ANY_VOICE, "")
            assert left.used == 1
            await call.aclose()
        with pytest.raises(EngineError, match="none of 2 engines.*no engine answers"):
            await open_session(ANY_VOICE, "")

    asyncio.run(scenario())


def test_a_voice_that_nobody_has_is_not_asked_for_twice(folders: list[Path]) -> None:
    async def scenario() -> None:
        async with FakeEngine(folders[0]) as first, FakeEngine(folders[1]) as second:
            with pytest.raises(ConfigError, match="unknown voice"):
                await open_session(PersonaPlexOptions(voice="NOVA"), "")
            assert first.num_refused + second.num_refused == 1

    asyncio.run(scenario())


def test_one_engine_that_answers_is_enough_to_begin_and_none_is_not(
    folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        capacity = Capacity()
        async with FakeEngine(folders[0], slots=3):
            await WorkerEngines(capacity, answer_timeout_s=0.0).start()
        assert (capacity.num_slots, capacity.num_ready) == (3, 1)
        assert "an engine is not there yet" in caplog.text
        with pytest.raises(EngineStartError, match="no engine answers"):
            await WorkerEngines(Capacity(), answer_timeout_s=0.0).start()

    asyncio.run(scenario())


def test_engines_that_cannot_all_start_leave_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONAPLEX_DEVICE", "cpu,cpu")
    monkeypatch.setenv("PERSONAPLEX_MODEL", "/nowhere")

    async def scenario() -> None:
        engines = WorkerEngines(Capacity(), answer_timeout_s=1.0)
        with pytest.raises(EngineStartError, match="/nowhere"):
            await engines.start()
        assert [supervisor.pid for supervisor in engines._supervisors] == [None, None]
        await engines.stop()

    asyncio.run(scenario())


def test_two_real_engines_share_calls_and_one_dies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONAPLEX_DEVICE", "cpu,cpu")
    monkeypatch.setenv("PERSONAPLEX_MODEL", str(TINY16))
    monkeypatch.setenv("PERSONAPLEX_SLOTS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    async def scenario() -> None:
        capacity = Capacity()
        engines = WorkerEngines(capacity, answer_timeout_s=1.0)
        try:
            endpoints = await engines.start()
            watcher = asyncio.create_task(engines.watch())
            assert sorted(capacity.engines) == ["cpu#1", "cpu#2"]
            assert (len(endpoints), capacity.num_slots) == (2, 2)
            with exported_to_jobs(endpoints):
                calls = [await open_session(ANY_VOICE, "") for _ in range(2)]
                await wait_for(lambda: capacity.load(set()) == 1.0)
                assert [stats.used for stats in capacity.engines.values()] == [1, 1]
                victim = engines._supervisors[0]
                assert victim.pid is not None
                os.kill(victim.pid, signal.SIGKILL)
                fates = await asyncio.gather(*(hear_frames(call) for call in calls))
                assert sorted(fates) == ["alive", "dead"], "one engine's death costs its own call"
                await wait_for(lambda: (capacity.num_ready, capacity.num_slots) == (1, 1))
                await wait_for(lambda: capacity.num_slots == 2, timeout_s=60.0)
                again = await open_session(ANY_VOICE, "")
                assert (await again.receive()).step == 0
                await asyncio.gather(again.aclose(), *(call.aclose() for call in calls))
            watcher.cancel()
        finally:
            await engines.stop()

    asyncio.run(scenario())


async def hear_frames(call: EngineSession) -> str:
    """Talk for half a second; says whether the engine lived."""
    try:
        await call.receive()
        for _ in range(6):
            call.send_frame(bytes(3840))
            await asyncio.sleep(0.08)
            await call.receive()
    except EngineDiedError:
        return "dead"
    return "alive"
