"""Fixtures that several test modules share."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from livekit_personaplex.demo.livekit_server import (
    LiveKitCredentials,
    LocalLiveKitServer,
    find_livekit_server,
)
from livekit_personaplex.wire.address import EngineAddress
from tests.gst_harness import GStreamer, find_gstreamer

# Small models are computed fastest by one thread, most of all where servers and rooms want a core:
# threads that wait for one another spin. For what tests start as well; read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def livekit() -> Iterator[LiveKitCredentials]:
    """A real LiveKit server on loopback, for all tests that need one."""
    with LocalLiveKitServer(find_livekit_server(PROJECT)) as server:
        yield server.credentials


@pytest.fixture(scope="session")
def gstreamer(tmp_path_factory: pytest.TempPathFactory) -> GStreamer:
    """The system's GStreamer and its Python plugin loader; skips where they are missing."""
    return find_gstreamer(tmp_path_factory.mktemp("gstreamer"))


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineAddress]:
    """A real engine process on the small checkpoint, with two slots, for tests of its clients.

    What its sessions heard and said is in ``recordings`` beside its socket.
    """
    folder = tmp_path_factory.mktemp("engine")
    address = f"unix:{folder}/engine.sock"
    program = [sys.executable, "-m", "livekit_personaplex.cli.main", "serve"]
    checkpoint = str(PROJECT / "tests" / "data" / "tiny16" / "checkpoint")
    options = ["--model", checkpoint, "--device", "cpu", "--slots", "2", "--listen", address]
    options += ["--record", str(folder / "recordings")]
    with subprocess.Popen(
        [*program, *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready {address}\n"
            yield EngineAddress.parse(address)
        finally:
            process.terminate()
