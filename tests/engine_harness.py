"""A whole engine in this process, on a fake core and a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.listen_socket import ListenSocket
from livekit_personaplex.engine.server import EngineServer
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.protocol import AgentFrame, FirstSpeaker, OpenRequest
from tests.fakes import Expected


@dataclass
class RunningEngine:
    """A ready engine and where it listens."""

    engine: Engine
    address: EngineAddress

    async def open(
        self,
        *,
        voice: str = "ANN",
        persona: str = "",
        seed: int | None = 1,
        greeting: str = "",
        first_speaker: FirstSpeaker = "model",
        **options: Any,
    ) -> EngineSession:
        request = OpenRequest(
            voice=voice,
            persona=persona,
            sampling=Sampling(seed=seed),
            greeting=greeting,
            first_speaker=first_speaker,
        )
        return await EngineSession.open(self.address, request, **options)

    async def wait_unused(self) -> None:
        """Wait until every slot is free; AssertionError when that takes too long."""
        await wait_for(lambda: self.engine.stats().used == 0)


@asynccontextmanager
async def running_engine(
    core: Core, folder: Path, *, listen: str = "", token: str | None = None, **settings: Any
) -> AsyncIterator[RunningEngine]:
    """Serve a core until the block ends; the engine's thread and sockets are gone then."""
    address = EngineAddress.parse(listen or f"unix:{folder / 'engine.sock'}")
    given = EngineSettings(listen=address, token=token, **settings)
    engine = Engine(given, lambda: core)
    listen_socket = ListenSocket(address)
    server = EngineServer(
        engine,
        listen_socket,
        token=token,
        nvidia_protocol=given.nvidia_protocol,
        nvidia_client_dir=given.nvidia_client_dir,
    )
    try:
        await server.start()
        await engine.start()
        yield RunningEngine(engine, listen_socket.address)
    finally:
        await server.stop()
        assert await engine.finish_stop(), "the core's thread hangs"


async def talk(session: EngineSession, frames: list[bytes]) -> list[AgentFrame]:
    """Take agent frame 0, then send each frame and take the answer before the next."""
    received = [await session.receive()]
    for pcm in frames:
        session.send_frame(pcm)
        received.append(await session.receive())
    return received


def said(frames: list[AgentFrame]) -> Expected:
    """What agent frames carry, to compare with `expected_talk`."""
    return Expected(
        pcm=[frame.pcm for frame in frames],
        tokens=[frame.tokens for frame in frames],
        text=[frame.text for frame in frames],
    )


async def wait_for(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Wait for what other tasks do; AssertionError when they do not."""
    end_s = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < end_s, "it did not happen"
        await asyncio.sleep(0.002)
