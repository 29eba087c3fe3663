"""Fixtures that several test modules share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from livekit_personaplex.demo.livekit_server import (
    LiveKitCredentials,
    LocalLiveKitServer,
    find_livekit_server,
)

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def livekit() -> Iterator[LiveKitCredentials]:
    """A real LiveKit server on loopback, for all tests that need one."""
    with LocalLiveKitServer(find_livekit_server(PROJECT)) as server:
        yield server.credentials
