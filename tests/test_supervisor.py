"""The supervisor and a real engine process on a fake core: start, watch, start again, stop."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from livekit_personaplex.errors import EngineStartError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire import supervisor
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.protocol import OpenRequest
from livekit_personaplex.wire.supervisor import EngineState, EngineSupervisor
from tests.engine_harness import wait_for
from tests.fakes import wait_until

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("fake_engine_process.py")
REQUEST = OpenRequest(voice="ANN", persona="", sampling=Sampling(seed=1))


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder for temporary files, of a length that a socket's path can have; waits are short."""
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT_S", 3.0)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def behave(*behaviours: str) -> Callable[[EngineSettings], Sequence[str]]:
    """A command that shows one behaviour after the other, one a start; the last one stays."""
    left = list(behaviours)

    def command(settings: EngineSettings) -> list[str]:
        behaviour = left.pop(0) if len(left) > 1 else left[0]
        address = str(settings.listen)
        return [sys.executable, str(SCRIPT), behaviour, address, "--exit-with-parent"]

    return command


@asynccontextmanager
async def supervised(*behaviours: str) -> AsyncIterator[tuple[EngineSupervisor, list[EngineState]]]:
    states: list[EngineState] = []
    engine = EngineSupervisor(EngineSettings(), on_state=states.append, command=behave(*behaviours))
    try:
        await engine.start()
        yield engine, states
    finally:
        await engine.stop()


async def is_served(address: EngineAddress, token: str | None = None) -> bool:
    session = await EngineSession.open(address, REQUEST, token=token)
    frame = await session.receive()
    await session.aclose()
    return frame.step == 0


def is_running(pid: int) -> bool:
    """Whether a process is there; one that nobody has reaped yet is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_an_engine_is_started_served_and_stopped_without_a_trace(folder: Path) -> None:
    async def run() -> None:
        async with supervised("fine") as (engine, states):
            assert await is_served(engine.address)
            pid = engine.pid
            assert pid is not None and os.getsid(pid) == pid, "it shares our terminal's session"
            assert Path(engine.address.unix_path).parent.stat().st_mode & 0o777 == 0o700
        assert states == [EngineState.STARTING, EngineState.READY, EngineState.STOPPED]
        assert not is_running(pid)
        await engine.stop()

    asyncio.run(run())
    assert list(folder.iterdir()) == []


def test_what_the_engine_logs_is_logged_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with caplog.at_level(logging.DEBUG):
            async with supervised("fine"):
                await wait_for(lambda: "engine ready" in caplog.text)

    asyncio.run(run())
    lines = {record.getMessage(): record.levelno for record in caplog.records}
    warning = "engine: WARNING livekit_personaplex: a warning of the engine slots=2"
    assert lines[warning] == logging.WARNING
    assert any("engine ready" in line and level == logging.INFO for line, level in lines.items())


@pytest.mark.parametrize(
    ("behaviour", "timeout_s", "message"),
    [
        ("bug", 10.0, "ended with exit code 2 before it was ready.*a bug in loading"),
        ("slow", 1.0, "not ready within 1 s"),
    ],
)
def test_an_engine_that_does_not_become_ready_is_said_with_its_last_words(
    folder: Path, behaviour: str, timeout_s: float, message: str
) -> None:
    states: list[EngineState] = []

    async def run() -> None:
        engine = EngineSupervisor(
            EngineSettings(),
            on_state=states.append,
            start_timeout_s=timeout_s,
            command=behave(behaviour),
        )
        with pytest.raises(EngineStartError, match=f"(?s){message}"):
            await engine.start()
        assert engine.pid is None
        await engine.stop()

    asyncio.run(run())
    assert states == [EngineState.STARTING, EngineState.STOPPED]
    assert list(folder.iterdir()) == []


def test_a_command_that_is_not_there_is_said() -> None:
    async def run() -> None:
        engine = EngineSupervisor(EngineSettings(), command=lambda settings: ["/nowhere/engine"])
        with pytest.raises(EngineStartError, match="cannot start /nowhere/engine"):
            await engine.start()

    asyncio.run(run())


def test_an_engine_that_is_killed_is_started_again_at_the_same_address() -> None:
    async def run() -> None:
        async with supervised("fine") as (engine, states):
            address, pid = engine.address, engine.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await wait_for(lambda: engine.state is EngineState.RESTARTING)
            await wait_for(lambda: engine.state is EngineState.READY)
            assert (engine.address, engine.num_restarts) == (address, 1)
            assert engine.pid != pid and await is_served(address)
        assert states[2:] == [EngineState.RESTARTING, EngineState.READY, EngineState.STOPPED]

    asyncio.run(run())


def test_an_engine_that_hangs_as_a_whole_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PROBE_EVERY_S", 0.1)
    monkeypatch.setattr(supervisor, "UNANSWERED_S", 2.0)

    async def run() -> None:
        async with supervised("fine") as (engine, _):
            pid = engine.pid
            assert pid is not None
            await asyncio.sleep(2.5)
            assert engine.num_restarts == 0  # one that answers is left alone
            os.kill(pid, signal.SIGSTOP)
            await wait_for(lambda: engine.num_restarts == 1)
            assert not is_running(pid) and await is_served(engine.address)

    asyncio.run(run())


def test_an_engine_on_tcp_gets_its_token_and_keeps_the_port_it_chose() -> None:
    async def run() -> None:
        settings = EngineSettings(listen=EngineAddress(host="127.0.0.1"), token="secret")
        engine = EngineSupervisor(settings, command=behave("fine"))
        try:
            address = await engine.start()
            assert address.port != 0 and await is_served(address, engine.token)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await wait_for(lambda: engine.num_restarts == 1)
            assert engine.address == address and await is_served(address, "secret")
        finally:
            await engine.stop()

    asyncio.run(run())


def test_an_engine_that_fails_to_start_again_is_tried_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with supervised("fine", "no-checkpoint", "no-checkpoint", "fine") as (engine, _):
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await wait_for(lambda: engine.num_restarts == 1, timeout_s=20.0)
            assert await is_served(engine.address)

    asyncio.run(run())
    assert caplog.text.count("the engine did not start again") == 2


def test_signals_of_the_terminal_do_not_reach_the_engine() -> None:
    async def run() -> None:
        async with supervised("fine") as (engine, _):
            assert engine.pid is not None
            os.killpg(engine.pid, signal.SIGINT)
            os.killpg(engine.pid, signal.SIGTERM)
            assert await is_served(engine.address)
            assert (engine.state, engine.num_restarts) == (EngineState.READY, 0)

    asyncio.run(run())


def test_an_engine_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with supervised("stubborn") as (engine, _):
            pid = engine.pid
        assert pid is not None and not is_running(pid)

    asyncio.run(run())


def test_stopping_while_the_engine_is_started_again_leaves_nothing(folder: Path) -> None:
    async def run() -> None:
        async with supervised("fine", "slow") as (engine, _):
            first = engine.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await wait_for(lambda: engine.pid not in (None, first))
            second = engine.pid
        assert second is not None and not is_running(second)

    asyncio.run(run())
    assert list(folder.iterdir()) == []


def test_a_start_that_is_cancelled_leaves_nothing(folder: Path) -> None:
    async def run() -> None:
        engine = EngineSupervisor(EngineSettings(), command=behave("slow"))
        starting = asyncio.create_task(engine.start())
        await wait_for(lambda: engine.pid is not None)
        pid = engine.pid
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert pid is not None and not is_running(pid)

    asyncio.run(run())
    assert list(folder.iterdir()) == []


def test_an_engine_dies_with_a_parent_that_is_killed(folder: Path) -> None:
    parent_code = f"""
        import asyncio, sys, tempfile
        sys.path.insert(0, {str(ROOT)!r})
        tempfile.tempdir = {str(folder)!r}
        from livekit_personaplex.settings import EngineSettings
        from tests.test_supervisor import EngineSupervisor, behave

        async def main():
            engine = EngineSupervisor(EngineSettings(), command=behave("fine"))
            await engine.start()
            print(engine.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent_code)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    wait_until(lambda: not is_running(pid), timeout_s=20.0)
    assert list(folder.iterdir()) == []
