import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from livekit.agents import Agent, AgentSession, JobContext, JobExecutorType, JobRequest
from livekit.protocol import agent, models

from livekit_personaplex import (
    ConfigError,
    EngineStartError,
    PersonaPlexModel,
    PersonaPlexServer,
)
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.server import FULL_LOAD
from livekit_personaplex.wire.stats import EngineStats
from tests.engine_harness import wait_for
from tests.fake_engine import FakeEngine, words
from tests.fake_room import Captions, Loudspeaker, Microphone


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PERSONAPLEX_", "LIVEKIT_")):
            monkeypatch.delenv(name)


def stats(*, slots: int = 4, used: int = 0, ready: bool = True) -> EngineStats:
    zeros: dict[str, Any] = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
    return EngineStats(**zeros | {"slots": slots, "used": used, "ready": ready})


def capacity(*, slots: int = 4, used: int = 0) -> Capacity:
    made = Capacity()
    made.update("engine", stats(slots=slots, used=used))
    return made


def test_no_call_fits_while_nothing_is_known_of_an_engine() -> None:
    assert Capacity().load(set()) == 1.0
    assert not Capacity().reserve("a", set())


@pytest.mark.parametrize("seen", [None, stats(ready=False)], ids=["gone", "loading"])
def test_no_call_fits_while_the_engine_is_away(seen: EngineStats | None) -> None:
    made = capacity()
    made.update("engine", seen)
    assert made.load(set()) == 1.0


def test_load_is_the_share_of_slots_in_use() -> None:
    assert capacity(slots=8, used=2).load(set()) == 0.25


def test_a_job_that_has_no_slot_yet_counts() -> None:
    assert capacity(slots=4, used=1).load({"a", "b"}) == 0.5


def test_slots_that_other_workers_use_count() -> None:
    assert capacity(slots=4, used=4).load({"a"}) == 1.0


def test_a_job_counts_once_while_it_goes_from_reserved_to_running() -> None:
    made = capacity(slots=4)
    assert made.reserve("a", set())
    assert made.load({"a"}) == 0.25
    made.release("a")
    assert made.load({"a"}) == 0.25
    assert made.load(set()) == 0.0


def test_ten_reservations_at_once_on_four_slots_give_four() -> None:
    made = capacity(slots=4)
    assert [made.reserve(f"job{n}", set()) for n in range(10)] == [True] * 4 + [False] * 6
    made.release("job0")
    assert made.reserve("late", set())


class Requests:
    """Ten dispatches; those accepted take a while to be assigned."""

    def __init__(self, num: int) -> None:
        self.accepted: list[str] = []
        self.rejected: list[tuple[str, bool]] = []
        self.all = [self._make(f"job{n}") for n in range(num)]

    def _make(self, job_id: str) -> JobRequest:
        async def on_reject(terminate: bool) -> None:
            self.rejected.append((job_id, terminate))

        async def on_accept(arguments: object) -> None:
            await asyncio.sleep(0.05)
            self.accepted.append(job_id)

        job = agent.Job(id=job_id, room=models.Room(name=job_id))
        return JobRequest(job=job, on_reject=on_reject, on_accept=on_accept)


async def talk(ctx: JobContext) -> None:
    """An entrypoint that is never reached."""


class Running:
    """A server that runs without LiveKit, on an engine that runs already."""

    def __init__(self, server: PersonaPlexServer) -> None:
        self.server = server
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PersonaPlexServer:
        started = asyncio.Event()
        self.server.once("worker_started", started.set)
        self.task = asyncio.create_task(self.server.run(devmode=True, unregistered=True))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({self.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            waiting.cancel()
            await self.task
        return self.server

    async def __aexit__(self, *exc: object) -> None:
        await self.server.aclose()
        assert self.task is not None
        await self.task


def make_server(**options: Any) -> PersonaPlexServer:
    server = PersonaPlexServer(
        job_executor_type=JobExecutorType.THREAD,
        num_idle_processes=0,
        host="127.0.0.1",
        **options,
    )
    server.rtc_session(talk, agent_name="personaplex")
    return server


@pytest.fixture
def engine_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PERSONAPLEX_ENGINE", f"unix:{tmp_path}/engine.sock")
    yield tmp_path


def test_ten_dispatches_at_once_on_four_slots_give_four_calls(engine_folder: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(engine_folder, slots=4), Running(make_server()) as server:
            requests = Requests(10)
            await asyncio.gather(*(server._answer(request) for request in requests.all))
            assert len(requests.accepted) == 4
            assert requests.rejected == [(f"job{n}", False) for n in range(4, 10)]

    asyncio.run(scenario())


def test_the_users_own_answer_is_asked_when_there_is_a_slot(engine_folder: Path) -> None:
    seen: list[str] = []

    async def only_odd(request: JobRequest) -> None:
        seen.append(request.id)
        if request.id == "job1":
            await request.accept()
        else:
            await request.reject()

    async def scenario() -> None:
        server = PersonaPlexServer(
            job_executor_type=JobExecutorType.THREAD, num_idle_processes=0, host="127.0.0.1"
        )
        server.rtc_session(talk, agent_name="personaplex", on_request=only_odd)
        async with FakeEngine(engine_folder, slots=1), Running(server):
            requests = Requests(2)
            for request in requests.all:
                await server._answer(request)
            assert seen == ["job0", "job1"]
            assert requests.rejected == [("job0", True)]
            assert requests.accepted == ["job1"]

    asyncio.run(scenario())


def test_livekit_is_told_the_engines_load(engine_folder: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(engine_folder, slots=4) as engine, Running(make_server()) as server:
            await server._refresh_worker_load()
            assert (server._worker_load, server._is_available()) == (0.0, True)
            engine.is_ready = False
            await wait_for(lambda: server._get_effective_load() == FULL_LOAD)
            await server._refresh_worker_load()
            assert (server._worker_load, server._is_available()) == (FULL_LOAD, False)
            engine.is_ready = True
            await wait_for(server._is_available)

    asyncio.run(scenario())


def test_job_processes_find_the_engine_and_load_no_speech_models_of_livekits(
    engine_folder: Path,
) -> None:
    async def scenario() -> None:
        async with FakeEngine(engine_folder):
            async with Running(make_server()):
                assert os.environ["PERSONAPLEX_ENGINE"] == f"unix:{engine_folder}/engine.sock"
                assert os.environ["LIVEKIT_AGENTS_PRELOAD_LOCAL_INFERENCE"] == "0"
            assert "LIVEKIT_AGENTS_PRELOAD_LOCAL_INFERENCE" not in os.environ

    asyncio.run(scenario())


def test_a_server_may_run_again_after_it_was_closed(engine_folder: Path) -> None:
    async def scenario() -> None:
        server = make_server()
        async with FakeEngine(engine_folder):
            for _ in range(2):
                async with Running(server):
                    await server._refresh_worker_load()
                    assert server._worker_load == 0.0

    asyncio.run(scenario())


def test_an_engine_that_does_not_answer_keeps_the_server_from_starting(engine_folder: Path) -> None:
    async def scenario() -> None:
        server = make_server(engine_timeout_s=0.0)
        with pytest.raises(EngineStartError, match="no engine answers"):
            await server.run(devmode=True, unregistered=True)
        await server.drain()
        await server.aclose()

    asyncio.run(scenario())


def test_an_engine_that_cannot_be_made_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONAPLEX_SLOTS", "many")
    with pytest.raises(ConfigError, match="PERSONAPLEX_SLOTS"):
        asyncio.run(make_server().run(devmode=True, unregistered=True))


def test_without_a_livekit_server_no_engine_is_started(engine_folder: Path) -> None:
    with pytest.raises(ValueError, match="ws_url is required"):
        asyncio.run(make_server().run())


def test_a_signal_while_the_engine_is_starting_ends_the_server(engine_folder: Path) -> None:
    async def scenario() -> None:
        server = make_server(engine_timeout_s=60.0)
        running = asyncio.create_task(server.run(devmode=True, unregistered=True))
        await asyncio.sleep(0.1)
        await server.drain()
        await server.aclose()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())


SAID: list[str] = []
HAS_SAID = threading.Event()


async def talk_without_a_room(ctx: JobContext) -> None:
    model = PersonaPlexModel(auto_arm=False)
    session = AgentSession[None](
        llm=model, vad=None, turn_handling={"turn_detection": "realtime_llm"}
    )
    session.input.audio = Microphone()
    session.output.audio = Loudspeaker()
    session.output.transcription = captions = Captions()
    await session.start(Agent(instructions="You are Ann."))
    assert await model.arm_when_heard(session, timeout_s=1.0)
    await asyncio.sleep(1.5)
    await session.aclose()
    SAID.extend(captions.texts)
    HAS_SAID.set()
    ctx.shutdown()


def test_a_job_on_a_thread_of_its_own_talks_as_in_the_console(engine_folder: Path) -> None:
    async def scenario() -> None:
        server = PersonaPlexServer(
            job_executor_type=JobExecutorType.THREAD, num_idle_processes=0, host="127.0.0.1"
        )
        server.rtc_session(talk_without_a_room, agent_name="personaplex")
        async with FakeEngine(engine_folder, script=words("hello there")) as engine:
            async with Running(server):
                await server.simulate_job("console", agent_identity="console", fake_job=True)
                assert await asyncio.to_thread(HAS_SAID.wait, 30.0)
            assert SAID == ["hello there"]
            assert engine.used == 0

    asyncio.run(scenario())
