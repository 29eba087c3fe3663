"""An engine process on each GPU of a machine, all at once: each says what the reference says."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from livekit_personaplex.audio import split_frames
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.http import fetch_stats
from livekit_personaplex.wire.protocol import OpenRequest
from livekit_personaplex.wire.supervisor import EngineSupervisor
from tests.engine_harness import talk

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(590),
]

TINY = Path(__file__).parent / "data" / "tiny16"
NUM_FRAMES = 60


def test_every_gpu_runs_an_engine_of_its_own() -> None:
    golden = json.loads((TINY / "golden.json").read_text(encoding="utf-8"))
    with safe_open(TINY / "golden.safetensors", "numpy") as file:
        expected = file.get_tensor("pt_persona.tokens")[:9, :NUM_FRAMES]
    pcm, _ = soundfile.read(TINY / "user.wav", dtype="int16")
    frames = [frame.tobytes() for frame in split_frames(pcm)[: NUM_FRAMES - 1]]
    request = OpenRequest(
        voice="TINY0", persona=golden["persona"], sampling=Sampling(greedy=True, seed=1)
    )

    async def hold_call(address: EngineAddress) -> NDArray[np.int64]:
        session = await EngineSession.open(address, request, timeout_s=30.0)
        received = await talk(session, frames)
        await session.aclose()
        return np.array([frame.tokens for frame in received]).T

    async def run() -> None:
        engines = [EngineSupervisor(settings_of(n)) for n in range(torch.cuda.device_count())]
        try:
            addresses = await asyncio.gather(*(engine.start() for engine in engines))
            for tokens in await asyncio.gather(*(hold_call(each) for each in addresses)):
                np.testing.assert_array_equal(tokens, expected)
            for address in addresses:
                assert (await fetch_stats(address)).opened == 1
        finally:
            await asyncio.gather(*(engine.stop() for engine in engines))

    asyncio.run(run())


def settings_of(index: int) -> EngineSettings:
    model = str(TINY / "checkpoint")
    return EngineSettings(model=model, device=f"cuda:{index}", dtype="float32", slots=2)
