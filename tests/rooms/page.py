"""The page and what it stands on, and Chromium to open it with a recording as its microphone."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.demo.programs import start_engine
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.web.server import LIVEKIT_CLIENT, PageServer, PageSetup
from livekit_personaplex.wire.address import EngineAddress
from tests.rooms.worker import AGENT, PROJECT, START_TIMEOUT_S, TINY16, run_worker

CHROMIUM = "/usr/bin/chromium"
VOICE_FILE = PROJECT / "tests" / "data" / "speech" / "opening_hours.wav"
AXE = PROJECT / ".tools" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
PERSONA = "You enjoy having a good conversation. Your name is Ann."

_MISSING = [str(path) for path in (Path(CHROMIUM), LIVEKIT_CLIENT) if not path.is_file()]
IN_CHROMIUM = [
    pytest.mark.room,
    pytest.mark.browser,
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]
"""Marks of tests that open a page with livekit-client."""

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_flags(*, microphone: Path | None = VOICE_FILE, is_allowed: bool = True) -> list[str]:
    """Give Chromium's command line: what its microphone says, and whether the page may use it."""
    flags = list(_FLAGS)
    if microphone is not None:
        flags += [
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}",
        ]
    if is_allowed:
        flags.append("--use-fake-ui-for-media-stream")
    return flags


@contextmanager
def serving_page(setup: PageSetup) -> Iterator[str]:
    """Serve the page from a thread until the block ends; gives its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="page server")
    thread.start()
    server = PageServer(setup)
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(0), loop).result(10.0)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True, slots=True)
class PageStack:
    """A page that can be called from, and its engine."""

    url: str
    setup: PageSetup
    engine: LoggedProcess


@contextmanager
def run_engine(folder: Path, *, slots: int) -> Iterator[tuple[LoggedProcess, EngineEndpoint]]:
    """Run an engine with the small model on a socket in ``folder`` until the block ends."""
    address = EngineAddress.parse(f"unix:{folder / 'engine.sock'}")
    options = ["--model", str(TINY16), "--device", "cpu", "--slots", str(slots)]
    with start_engine([*options, "--listen", str(address)], OMP_NUM_THREADS="1") as engine:
        engine.wait_for("ready unix:", timeout_s=START_TIMEOUT_S)
        yield engine, EngineEndpoint(address=address)


@contextmanager
def run_page(
    livekit: LiveKitCredentials, folder: Path, *, slots: int = 2, agent_timeout_s: float = 20.0
) -> Iterator[PageStack]:
    """Run engine, worker and page until the block ends."""
    with run_engine(folder, slots=slots) as (engine, endpoint):
        settings = {
            "PERSONAPLEX_ENGINE": str(endpoint.address),
            "PERSONAPLEX_CAPTIONS": "local" if find_spec("moonshine_voice") else "",
        }
        with run_worker(livekit, folder / "worker", slots=slots, agent=AGENT, settings=settings):
            setup = PageSetup(
                livekit=livekit,
                engine=endpoint,
                voice="TINY0",
                persona=PERSONA,
                agent_timeout_s=agent_timeout_s,
            )
            with serving_page(setup) as url:
                yield PageStack(url, setup, engine)
