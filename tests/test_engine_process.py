"""The life of an engine process, on a fake core: signals, failures, exit codes, what it leaves."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from livekit_personaplex.engine.process import EXIT_FAILED, EXIT_STOPPED
from livekit_personaplex.errors import EngineDiedError, SessionClosedError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.protocol import OpenRequest
from tests.fakes import user_frames

SCRIPT = Path(__file__).with_name("fake_engine_process.py")
REQUEST = OpenRequest(voice="ANN", persona="", sampling=Sampling(seed=1))


@contextmanager
def engine_process(
    folder: Path, behaviour: str, *options: str
) -> Iterator[tuple[subprocess.Popen[str], EngineAddress]]:
    address = f"unix:{folder}/run/engine.sock"
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), behaviour, address, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process, EngineAddress.parse(address)
        finally:
            process.kill()


def wait_ready(process: subprocess.Popen[str], address: EngineAddress) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"ready {address}\n"


@pytest.mark.parametrize("told_by", [signal.SIGTERM, signal.SIGINT, "stdin"])
def test_an_engine_stops_as_told_says_goodbye_and_leaves_nothing(
    tmp_path: Path, told_by: signal.Signals | str
) -> None:
    options = ["--exit-with-parent"] if told_by == "stdin" else []

    async def talk_till_the_end(process: subprocess.Popen[str], address: EngineAddress) -> None:
        session = await EngineSession.open(address, REQUEST)
        await session.receive()
        if isinstance(told_by, signal.Signals):
            process.send_signal(told_by)
        else:
            assert process.stdin is not None
            process.stdin.close()
        with pytest.raises(SessionClosedError, match="shutting down"):
            await session.receive()
        await session.aclose()

    with engine_process(tmp_path, "fine", *options) as (process, address):
        wait_ready(process, address)
        asyncio.run(talk_till_the_end(process, address))
        assert process.wait(20.0) == EXIT_STOPPED
    assert list(tmp_path.iterdir()) == []


def test_an_engine_with_a_parent_ignores_the_signals_of_its_terminal(tmp_path: Path) -> None:
    async def talk(address: EngineAddress) -> None:
        session = await EngineSession.open(address, REQUEST)
        await session.receive()
        session.send_frame(user_frames(1)[0])
        await session.receive()
        await session.aclose()

    with engine_process(tmp_path, "fine", "--exit-with-parent") as (process, address):
        wait_ready(process, address)
        for told_by in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(told_by)
        asyncio.run(talk(address))
        assert process.poll() is None
        process.communicate(timeout=20.0)  # closes its standard input
        assert process.returncode == EXIT_STOPPED


@pytest.mark.parametrize(
    ("behaviour", "log"),
    [("tick-raises", "RuntimeError: device lost"), ("tick-hangs", "a tick hangs; the engine ends")],
)
def test_a_bad_tick_ends_the_process_after_telling_every_client(
    tmp_path: Path, behaviour: str, log: str
) -> None:
    async def talk_till_the_end(address: EngineAddress) -> None:
        sessions = [await EngineSession.open(address, REQUEST) for _ in range(2)]

        async def talk(session: EngineSession) -> None:
            while True:
                await session.receive()
                session.send_frame(user_frames(1)[0])

        for ending in asyncio.as_completed([talk(session) for session in sessions]):
            with pytest.raises(EngineDiedError, match="the engine failed"):
                await ending
        for session in sessions:
            await session.aclose()

    with engine_process(tmp_path, behaviour) as (process, address):
        wait_ready(process, address)
        asyncio.run(talk_till_the_end(address))
        _, written = process.communicate(timeout=20.0)
    assert process.returncode == EXIT_FAILED
    assert log in written
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "told", "has_traceback"),
    [
        ("no-checkpoint", "error: model.safetensors is missing", False),
        ("bug", "error: the model did not load: a bug in loading", True),
    ],
)
def test_a_model_that_does_not_load_is_said_and_leaves_nothing(
    tmp_path: Path, behaviour: str, told: str, has_traceback: bool
) -> None:
    with engine_process(tmp_path, behaviour) as (process, _):
        output, written = process.communicate(timeout=20.0)
    assert (process.returncode, output) == (2, "")
    assert written.rstrip().endswith(told)
    assert ("Traceback" in written) == has_traceback
    assert list(tmp_path.iterdir()) == []


def test_an_engine_told_to_stop_while_it_loads_does_not_wait_for_the_model(tmp_path: Path) -> None:
    with engine_process(tmp_path, "slow") as (process, address):
        socket_path = Path(address.unix_path)
        while not socket_path.exists():
            assert process.poll() is None
        process.terminate()
        assert process.wait(20.0) == EXIT_STOPPED
    assert list(tmp_path.iterdir()) == []


def test_a_second_engine_on_the_same_path_is_refused_before_it_loads(tmp_path: Path) -> None:
    with engine_process(tmp_path, "fine") as (first, address):
        wait_ready(first, address)
        with engine_process(tmp_path, "slow") as (second, _):
            _, written = second.communicate(timeout=20.0)
            assert second.returncode == 2
            assert "an engine listens there; stop it" in written
        assert first.poll() is None


def test_what_is_logged_carries_its_values_and_nothing_personal(tmp_path: Path) -> None:
    with engine_process(tmp_path, "fine") as (process, address):
        wait_ready(process, address)
        process.terminate()
        _, written = process.communicate(timeout=20.0)
    assert "WARNING livekit_personaplex: a warning of the engine slots=2\n" in written
    assert f"INFO livekit_personaplex: engine ready address={address}\n" in written
    assert "Zoe" not in written
