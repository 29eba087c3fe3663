"""Slots, seen from rooms: who gets one, who does not, and that every slot comes back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np
import psutil
import pytest

from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.recording import rms
from livekit_personaplex.errors import PersonaPlexError
from tests.rooms.replay import RecordedCall, replay
from tests.rooms.speech import read_question
from tests.rooms.worker import RoomWorker, run_worker, until

pytestmark = pytest.mark.room

DISPATCH = {"voice": "TINY0", "greedy": True}
NUM_ROUNDS = 10
MAX_GROWTH_MB = 12.0


@pytest.fixture(scope="module")
def worker(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoomWorker]:
    with run_worker(livekit, tmp_path_factory.mktemp("worker"), slots=2) as running:
        yield running


@asynccontextmanager
async def calling(livekit: LiveKitCredentials, room: str) -> AsyncIterator[Caller]:
    """A caller with a microphone, in a room that ends a second after them."""
    caller = await Caller.join(livekit, room=room, dispatch=DISPATCH, departure_timeout_s=1)
    try:
        await caller.publish()
        yield caller
    finally:
        await caller.leave()


async def hear(caller: Caller, *, timeout_s: float = 30.0) -> None:
    """Wait until the agent is heard from now on."""
    known = len(caller.heard.pieces)
    await caller.until(
        lambda: any(rms(piece) > 0.01 for piece in caller.heard.pieces[known:]),
        what="the agent is heard",
        timeout_s=timeout_s,
    )


async def until_free(worker: RoomWorker, *, used: int = 0) -> None:
    """Wait until the engine has no more than so many slots in use."""
    for _ in range(200):
        if (await worker.stats()).used <= used:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"slots stay taken: {await worker.stats()}\n{worker.process.tail()}")


async def until_available(worker: RoomWorker, *, is_available: bool = True) -> None:
    """Wait until the worker has told LiveKit that it takes calls, or that it does not.

    It tells so every 2.5 s, and a call that comes earlier is offered to nobody or in vain.
    """

    def holds() -> bool:
        told = [line for line in worker.process.lines if "marking as" in line]
        return ("marking as available" in told[-1] if told else True) == is_available

    await until(holds, what=f"the worker is {'' if is_available else 'un'}available")
    await asyncio.sleep(0.3)


def test_two_callers_are_served_a_third_is_not_and_a_freed_slot_is_taken_again(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def scenario() -> None:
        async with calling(livekit, "first") as first, calling(livekit, "second") as second:
            await asyncio.gather(hear(first), hear(second))
            first.microphone.say(read_question("late_fee"))
            second.microphone.say(read_question("opening_hours"))
            assert (await worker.stats()).used == 2
            await until_available(worker, is_available=False)
            async with calling(livekit, "third") as third:
                with pytest.raises(PersonaPlexError):
                    await hear(third, timeout_s=4.0)
                assert not third.room.remote_participants
            await asyncio.gather(hear(first, timeout_s=1.0), hear(second, timeout_s=1.0))
            await first.leave()
            await until_free(worker, used=1)
            await until_available(worker)
            async with calling(livekit, "fourth") as fourth:
                await hear(fourth)
        await until_free(worker)
        await until(lambda: len(worker.recordings()) == 3, what="three recordings")

    asyncio.run(scenario())
    for path in worker.recordings():
        call = RecordedCall.read(path)
        assert np.array_equal(call.tokens, replay(call).tokens), "neighbours were heard"


def test_rounds_of_joining_and_leaving_leave_nothing_behind(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    async def visit(number: int) -> None:
        async with calling(livekit, f"round-{number}") as caller:
            await hear(caller)
        await until_free(worker)

    async def scenario() -> None:
        await until_available(worker)
        await visit(0)  # what is made at the first call only is there now
        engine, host = worker.engine(), psutil.Process(worker.process.pid)
        opened = (await worker.stats()).opened
        await asyncio.sleep(2.0)
        before = worker.num_processes(), engine.num_threads(), host.num_threads()
        used_mb = [process.memory_info().rss / 1e6 for process in (engine, host)]
        for number in range(1, NUM_ROUNDS + 1):
            await visit(number)
        stats = await worker.stats()
        assert (stats.opened - opened, stats.used, stats.backlog_frames) == (NUM_ROUNDS, 0, 0)
        assert stats.failed == 0
        await until(
            lambda: (worker.num_processes(), engine.num_threads(), host.num_threads()) == before,
            what=f"processes and threads {before} as before",
        )
        grown_mb = [
            process.memory_info().rss / 1e6 - used
            for process, used in zip((engine, host), used_mb, strict=True)
        ]
        assert max(grown_mb) < MAX_GROWTH_MB, f"engine and worker grew by {grown_mb} MB"

    asyncio.run(scenario())


def test_an_engine_that_dies_ends_the_call_with_an_error_and_the_worker_takes_calls_again(
    livekit: LiveKitCredentials, worker: RoomWorker
) -> None:
    mark = len(worker.process.lines)

    async def scenario() -> None:
        await until_available(worker)
        async with calling(livekit, "doomed") as caller:
            await hear(caller)
            worker.engine().kill()
            await caller.until(
                lambda: not caller.room.remote_participants,
                what="the agent leaves",
                timeout_s=20.0,
            )
        reported = worker.folder / "reports" / "doomed.json"
        await until(reported.exists, what="the agent's report")
        await until(
            lambda: any('"state": "ready"' in line for line in worker.process.lines[mark:]),
            what="another engine",
            timeout_s=60.0,
        )
        await until_available(worker)
        async with calling(livekit, "again") as again:
            await hear(again)
        await until_free(worker)

    asyncio.run(scenario())
    events = worker.report("doomed")["events"]
    errors = [event["error"] for event in events if event["type"] == "error"]
    assert [error["recoverable"] for error in errors] == [False]
    (closed,) = [event for event in events if event["type"] == "close"]
    assert closed["reason"] == "error"
    lines = [line for line in worker.process.lines[mark:] if "unrecoverable error" in line]
    assert any("engine" in line for line in lines), "nobody says what happened"
