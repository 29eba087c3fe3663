"""Many calls at once and several workers: who takes how many, and that restarts lose none."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from livekit import api

from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.errors import PersonaPlexError
from tests.rooms.worker import RoomWorker, run_worker, until

pytestmark = pytest.mark.room

STATUS_PERIOD_S = 3.0
"""LiveKit hears every 2.5 s whether a worker takes calls."""
MAX_NEWS_S = 0.6
"""From a slot that is free to LiveKit that knows."""
NUM_ENDS = 3
METRICS_AGE_S = 1.5
"""A worker shows its engines as they were up to a second ago."""
SETTLE_S = 2.0
"""After it nobody is still on the way: a job is a process that starts in half a second."""


@dataclass(frozen=True)
class Worker:
    """A worker, and the port of its metrics."""

    running: RoomWorker
    metrics_port: int

    async def until_used(self, used: int, *, timeout_s: float = 60.0) -> None:
        """Wait until so many of its slots are in use."""
        await self._until("personaplex_slots_used", used, timeout_s=timeout_s)

    async def until_idle(self) -> None:
        """Wait until it has no calls and no jobs, and LiveKit knows."""
        await self._until("personaplex_slots_used", 0)
        await self._until("personaplex_worker_load", 0)
        await asyncio.sleep(STATUS_PERIOD_S)

    async def until_freed(self, used: int) -> None:
        """Wait until its engine, asked at short intervals, has no more slots in use."""
        for _ in range(1_000):
            if (await self.running.stats()).used <= used:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{await self.running.stats()}\n{self.running.process.tail()}")

    async def total(self, name: str) -> float:
        """Sum of a metric over its engines, as its metrics page tells."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            text = await response.text()
        values = re.findall(rf"^{name}(?:{{.*}})? (.+)$", text, re.M)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    async def _until(self, name: str, value: float, *, timeout_s: float = 60.0) -> None:
        for _ in range(round(timeout_s / 0.2)):
            if await self.total(name) == value:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(
            f"expected {name} {value}, got {await self.total(name)}\n{self.running.process.tail()}"
        )


@contextmanager
def run(livekit: LiveKitCredentials, folder: Path, *, slots: int, devices: str) -> Iterator[Worker]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"PERSONAPLEX_METRICS": str(port), "PERSONAPLEX_DEVICE": devices}
    with run_worker(livekit, folder, slots=slots, mode="start", settings=settings) as running:
        yield Worker(running, port)


@pytest.fixture(scope="module")
def worker(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A worker with four slots."""
    folder = tmp_path_factory.mktemp("first") / "worker"
    with run(livekit, folder, slots=4, devices="cpu") as running:
        yield running


@pytest.fixture(scope="module")
def other_worker(
    worker: Worker, livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """Another with six, three on each of two engines; it is not there yet in the first test."""
    folder = tmp_path_factory.mktemp("second") / "worker"
    with run(livekit, folder, slots=3, devices="cpu,cpu") as running:
        yield running


@asynccontextmanager
async def called_rooms(
    livekit: LiveKitCredentials, rooms: Sequence[str]
) -> AsyncIterator[api.LiveKitAPI]:
    """Call the agent into rooms, all at once; they are gone, and their calls with them, after."""
    client = api.LiveKitAPI(livekit.url, livekit.api_key, livekit.api_secret)
    try:
        requests = [
            api.CreateAgentDispatchRequest(agent_name="personaplex", room=room) for room in rooms
        ]
        await asyncio.gather(*(client.agent_dispatch.create_dispatch(each) for each in requests))
        yield client
    finally:
        deletions = (client.room.delete_room(api.DeleteRoomRequest(room=room)) for room in rooms)
        await asyncio.gather(*deletions, return_exceptions=True)
        await client.aclose()


async def rooms_with_agents(client: api.LiveKitAPI, rooms: Sequence[str]) -> list[str]:
    answered = []
    for room in rooms:
        listed = await client.room.list_participants(api.ListParticipantsRequest(room=room))
        if any(each.kind == api.ParticipantInfo.Kind.AGENT for each in listed.participants):
            answered.append(room)
    return answered


async def until_answered(client: api.LiveKitAPI, rooms: Sequence[str], count: int) -> None:
    """Wait until so many rooms have an agent in them, no more and no less."""
    for _ in range(100):
        if len(await rooms_with_agents(client, rooms)) == count:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"these have agents: {await rooms_with_agents(client, rooms)}")


def test_ten_calls_at_once_on_four_slots_are_four(
    livekit: LiveKitCredentials, worker: Worker
) -> None:
    rooms = [f"rush-{number}" for number in range(10)]

    async def scenario() -> None:
        async with called_rooms(livekit, rooms) as client:
            await worker.until_used(4)
            await asyncio.sleep(SETTLE_S)
            await until_answered(client, rooms, 4)
            assert await worker.total("personaplex_slots_used") == 4
            assert await worker.total("personaplex_sessions_opened_total") == 4
            assert await worker.total("personaplex_sessions_refused_total") == 0
        await worker.until_idle()

    asyncio.run(scenario())


def test_calls_one_after_the_other_fill_every_slot_and_freed_ones_are_told_at_once(
    livekit: LiveKitCredentials, worker: Worker
) -> None:
    async def scenario(callers: list[Caller]) -> None:
        for number in range(4):
            callers.append(await join(livekit, f"turn-{number}"))
            await comes(callers[-1])
            await asyncio.sleep(STATUS_PERIOD_S)  # LiveKit has been told of this one
        assert (await worker.running.stats()).used == 4
        num_late = 0
        for number in range(NUM_ENDS):
            await callers.pop().leave()
            await worker.until_freed(3)
            await asyncio.sleep(MAX_NEWS_S)
            callers.append(await join(livekit, f"next-{number}"))
            try:
                await comes(callers[-1])
            except PersonaPlexError:
                num_late += 1
        assert num_late <= 1, "LiveKit hears late of slots that are free"
        await comes_when_dispatched_again(callers)

    async def comes_when_dispatched_again(callers: list[Caller]) -> None:
        """LiveKit keeps no call for later: who found every worker full is dispatched again."""
        await asyncio.sleep(STATUS_PERIOD_S)
        callers.insert(0, await join(livekit, "fifth"))
        await callers.pop().leave()
        await worker.until_freed(3)
        await asyncio.sleep(STATUS_PERIOD_S)
        assert not callers[0].room.remote_participants
        async with api.LiveKitAPI(livekit.url, livekit.api_key, livekit.api_secret) as client:
            request = api.CreateAgentDispatchRequest(agent_name="personaplex", room="fifth")
            await client.agent_dispatch.create_dispatch(request)
        await comes(callers[0])

    async def run_scenario() -> None:
        callers: list[Caller] = []
        try:
            await scenario(callers)
        finally:
            await asyncio.gather(*(caller.leave() for caller in callers))
        await worker.until_idle()

    asyncio.run(run_scenario())


def test_what_one_worker_has_no_slots_for_another_takes(
    livekit: LiveKitCredentials, worker: Worker, other_worker: Worker
) -> None:
    rooms = [f"shared-{number}" for number in range(10)]

    async def scenario() -> None:
        async with called_rooms(livekit, rooms) as client:
            await asyncio.gather(worker.until_used(4), other_worker.until_used(6))
            await until_answered(client, rooms, 10)
        for each in (worker, other_worker):
            assert await each.total("personaplex_sessions_failed_total") == 0
        await asyncio.gather(worker.until_idle(), other_worker.until_idle())

    asyncio.run(scenario())


def test_a_worker_that_is_replaced_finishes_its_call_while_the_other_takes_the_next(
    livekit: LiveKitCredentials, worker: Worker, other_worker: Worker
) -> None:
    async def scenario() -> None:
        early = await join(livekit, "early")
        await speaks(early)
        await asyncio.sleep(METRICS_AGE_S)
        old, new = worker, other_worker
        if await old.total("personaplex_slots_used") == 0:
            old, new = new, old
        process = old.running.process
        psutil.Process(process.pid).send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        late = await join(livekit, "late")
        await speaks(late)
        await new.until_used(1)
        await asyncio.gather(goes_on(early), goes_on(late))
        assert await old.total("personaplex_sessions_failed_total") == 0
        await early.leave()
        await until(lambda: process.returncode is not None, what="the old worker's end")
        assert process.returncode == 0
        await late.leave()

    asyncio.run(scenario())


async def join(livekit: LiveKitCredentials, room: str) -> Caller:
    dispatch = {"voice": "TINY0", "greedy": True}
    caller = await Caller.join(livekit, room=room, dispatch=dispatch, departure_timeout_s=1)
    await caller.publish()
    return caller


async def comes(caller: Caller) -> None:
    """Wait until the agent is in the caller's room."""
    await caller.until(
        lambda: len(caller.room.remote_participants) > 0, what="the agent comes", timeout_s=8.0
    )


async def speaks(caller: Caller) -> None:
    await caller.until(
        lambda: caller.agent_state == "speaking", what="the agent speaks", timeout_s=40.0
    )


async def goes_on(caller: Caller) -> None:
    heard_s = caller.heard.duration_s
    await caller.until(
        lambda: caller.heard.duration_s > heard_s + 1.0, what="the call goes on", timeout_s=10.0
    )
