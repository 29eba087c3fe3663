"""A worker that is told to end: it finishes its calls and takes no others."""

import asyncio
import signal
from pathlib import Path

import psutil
import pytest

from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.errors import PersonaPlexError
from tests.rooms.calling import calling
from tests.rooms.worker import AGENT, RoomWorker, run_worker, until

pytestmark = pytest.mark.room


async def speaks(caller: Caller, *, timeout_s: float) -> None:
    await caller.until(
        lambda: caller.agent_state == "speaking", what="the agent speaks", timeout_s=timeout_s
    )


def test_a_worker_told_to_end_takes_no_more_calls_and_finishes_those_it_has(
    livekit: LiveKitCredentials, tmp_path: Path
) -> None:
    async def scenario(worker: RoomWorker) -> None:
        engine = worker.engine()
        async with calling(livekit) as caller:
            await caller.publish()
            await speaks(caller, timeout_s=30.0)
            psutil.Process(worker.process.pid).send_signal(signal.SIGTERM)
            await asyncio.sleep(1.0)
            async with calling(livekit) as late:
                with pytest.raises(PersonaPlexError):
                    await speaks(late, timeout_s=4.0)
            heard_s = caller.heard.duration_s
            await caller.until(
                lambda: caller.heard.duration_s > heard_s + 1.0, what="the call", timeout_s=20.0
            )
            assert caller.agent_state == "speaking"
        await until(lambda: worker.process.returncode is not None, what="the worker's end")
        assert worker.process.returncode == 0
        await until(lambda: not engine.is_running(), what="the engine's end")

    with run_worker(livekit, tmp_path / "worker", slots=2, agent=AGENT, mode="start") as worker:
        asyncio.run(scenario(worker))
