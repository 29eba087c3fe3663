"""A worker with the small model, as a process of its own, and what it leaves behind."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.demo.programs import start_worker, wait_until_registered
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.http import fetch_stats
from livekit_personaplex.wire.stats import EngineStats

PROJECT = Path(__file__).resolve().parents[2]
TINY16 = PROJECT / "tests" / "data" / "tiny16" / "checkpoint"
AGENT = PROJECT / "agent.py"
AGENT_WITH_REPORT = PROJECT / "tests" / "rooms" / "agent_with_report.py"
START_TIMEOUT_S = 90.0
_LISTEN = "--listen="


@dataclass(frozen=True, slots=True)
class RoomWorker:
    """A running worker and its engine.

    Attributes:
        process: The worker.
        folder: Holds ``records`` (of the engine) and ``reports`` (of the agent).
    """

    process: LoggedProcess
    folder: Path

    def recordings(self) -> set[Path]:
        """What the engine has recorded so far, one file for every session that ended."""
        return set((self.folder / "records").glob("*.safetensors"))

    async def next_recording(self, known: set[Path]) -> Path:
        """Wait until the engine has written the recording of one more session."""
        try:
            await until(lambda: len(self.recordings() - known) == 1, what="the engine's recording")
        except AssertionError as error:
            raise AssertionError(f"{error}; the worker wrote:\n{self.process.tail()}") from None
        return (self.recordings() - known).pop()

    async def next_report(self, room: str) -> dict[str, Any]:
        """Wait for what LiveKit's session of a room knew when it ended."""
        path = self.folder / "reports" / f"{room}.json"
        await until(path.exists, what="the agent's report")
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def engine(self) -> psutil.Process:
        """The engine's process."""
        found = [p for p in self._children() if any(a.startswith(_LISTEN) for a in _cmdline(p))]
        assert len(found) == 1, f"expected one engine, found {len(found)}"
        return found[0]

    def num_processes(self) -> int:
        """How many processes the worker has under it, engine and idle job processes included."""
        return len(self._children())

    async def stats(self) -> EngineStats:
        """The engine's counters."""
        (listen,) = [a for a in _cmdline(self.engine()) if a.startswith(_LISTEN)]
        return await fetch_stats(EngineAddress.parse(listen.removeprefix(_LISTEN)))

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def run_worker(
    server: LiveKitCredentials,
    folder: Path,
    *,
    slots: int,
    agent: Path = AGENT_WITH_REPORT,
    mode: str = "dev",
    settings: Mapping[str, str] | None = None,
) -> Iterator[RoomWorker]:
    """Run a worker until the block ends; it has registered when the block begins.

    Args:
        server: The LiveKit server it works for.
        folder: For what it leaves behind; made here.
        slots: Calls at a time.
        agent: What to run.
        mode: ``dev`` or ``start``.
        settings: Environment variables that go before those of the small model on a CPU.
    """
    (folder / "reports").mkdir(parents=True)
    environment = {
        "PERSONAPLEX_MODEL": str(TINY16),
        "PERSONAPLEX_DEVICE": "cpu",
        "PERSONAPLEX_DTYPE": "float32",
        "PERSONAPLEX_SLOTS": str(slots),
        "PERSONAPLEX_RECORD": str(folder / "records"),
        "CALL_REPORTS": str(folder / "reports"),
        "OMP_NUM_THREADS": "1",
        **(settings or {}),
    }
    with start_worker(agent, server, mode=mode, settings=environment) as process:
        wait_until_registered(process, timeout_s=START_TIMEOUT_S)
        yield RoomWorker(process, folder)


async def until(holds: Callable[[], bool], *, what: str, timeout_s: float = 20.0) -> None:
    """Wait until something holds that no event tells."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s in vain for {what}"
        await asyncio.sleep(0.05)


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
