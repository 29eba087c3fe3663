"""Slots, seen from rooms: who gets one, who does not, and that every slot comes back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import psutil
import pytest

from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import rms
from livekit_personaplex.errors import PersonaPlexError
from tests.rooms.calling import calling
from tests.rooms.patience import in_real_time
from tests.rooms.replay import RecordedCall, replay
from tests.rooms.speech import read_question
from tests.rooms.worker import RoomWorker, run_worker, until

pytestmark = pytest.mark.room

NUM_ROUNDS = 10
MAX_GROWTH_MB = 12.0


@pytest.fixture(scope="module")
def worker(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoomWorker]:
    with run_worker(livekit, tmp_path_factory.mktemp("worker"), slots=2) as running:
        yield running


@asynccontextmanager
async def answered(livekit: LiveKitCredentials, worker: RoomWorker) -> AsyncIterator[Caller]:
    """A caller whom the agent has answered.

    LiveKit offers a call once, to workers that take calls by what it has heard, up to 2.5 s late.
    Who called too early hangs up and calls again, as people do.
    """
    for _ in range(3):
        async with calling(livekit) as caller:
            await caller.publish()
            try:
                await hear(caller, timeout_s=10.0)
            except PersonaPlexError:
                continue
            yield caller
            return
    raise AssertionError(f"no agent came; the worker wrote:\n{worker.process.tail()}")


async def hear(caller: Caller, *, timeout_s: float) -> None:
    """Wait until the agent is heard from now on."""
    known = len(caller.heard.pieces)
    await caller.until(
        lambda: any(rms(piece) > 0.01 for piece in caller.heard.pieces[known:]),
        what="the agent is heard",
        timeout_s=timeout_s,
    )


async def until_used(worker: RoomWorker, slots: int) -> None:
    """Wait until as many of the engine's slots are in use."""
    for _ in range(200):
        if (await worker.stats()).used == slots:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not {slots}: {await worker.stats()}\n{worker.process.tail()}")


def test_two_callers_are_served_and_a_third_is_not(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> None:
        async with answered(livekit, worker) as first, answered(livekit, worker) as second:
            first.microphone.say(read_question("late_fee"))
            second.microphone.say(read_question("opening_hours"))
            await until_used(worker, 2)
            async with calling(livekit) as third:
                await third.publish()
                with pytest.raises(PersonaPlexError):
                    await hear(third, timeout_s=4.0)
                assert not third.room.remote_participants
            await asyncio.gather(hear(first, timeout_s=10.0), hear(second, timeout_s=10.0))
        await until_used(worker, 0)
        await until(lambda: len(worker.recordings() - known) >= 2, what="two recordings")

    known = worker.recordings()
    in_real_time(worker, lambda: asyncio.run(scenario()))
    for path in worker.recordings() - known:
        call = RecordedCall.read(path)
        assert np.array_equal(call.tokens, replay(call).tokens), "neighbours were heard"


def test_rounds_of_joining_and_leaving_leave_nothing_behind(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def visit() -> None:
        async with answered(livekit, worker):
            pass
        await until_used(worker, 0)

    def threads(processes: list[psutil.Process]) -> int:
        return sum(process.num_threads() for process in processes)

    async def scenario() -> None:
        await visit()  # what is made at the first call only is there now
        lasting = [worker.engine(), psutil.Process(worker.process.pid)]
        await asyncio.sleep(2.0)
        opened, num_processes = (await worker.stats()).opened, worker.num_processes()
        num_threads = threads(lasting)
        used_mb = [process.memory_info().rss / 1e6 for process in lasting]
        for _ in range(NUM_ROUNDS):
            await visit()
        stats = await worker.stats()
        assert stats.opened - opened >= NUM_ROUNDS
        assert (stats.used, stats.backlog_frames, stats.failed) == (0, 0, 0)
        await until(
            lambda: worker.num_processes() <= num_processes,
            what=f"{num_processes} processes, {worker.num_processes()} are there",
        )
        assert threads(lasting) < num_threads + NUM_ROUNDS // 2
        now_mb = [process.memory_info().rss / 1e6 for process in lasting]
        grown_mb = [now - used for now, used in zip(now_mb, used_mb, strict=True)]
        assert max(grown_mb) < MAX_GROWTH_MB, f"engine and worker grew by {grown_mb} MB"

    asyncio.run(scenario())


def test_an_engine_that_dies_ends_the_call_with_an_error_and_the_worker_takes_calls_again(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    mark = len(worker.process.lines)

    async def scenario() -> dict[str, Any]:
        async with answered(livekit, worker) as caller:
            worker.engine().kill()
            await caller.until(
                lambda: not caller.room.remote_participants,
                what="the agent leaves",
                timeout_s=20.0,
            )
        report = await worker.next_report(caller.room.name)
        await until(
            lambda: any('"state": "ready"' in line for line in worker.process.lines[mark:]),
            what="another engine",
            timeout_s=60.0,
        )
        async with answered(livekit, worker):
            pass
        await until_used(worker, 0)
        return report

    events = asyncio.run(scenario())["events"]
    errors = [event["error"] for event in events if event["type"] == "error"]
    assert [error["recoverable"] for error in errors] == [False]
    (closed,) = [event for event in events if event["type"] == "close"]
    assert closed["reason"] == "error"
    lines = [line for line in worker.process.lines[mark:] if "unrecoverable error" in line]
    assert any("engine" in line for line in lines), "nobody says what happened"
