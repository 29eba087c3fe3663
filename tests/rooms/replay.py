"""What the engine recorded of a call, and the same call again without rooms, sockets and clocks."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.demo.latency import CallAudio
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.offline import OfflineConversation, converse
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from tests.rooms.worker import TINY16


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call as the engine saw it; the shapes are those of `engine.recorder`."""

    frames: NDArray[np.int16]
    tokens: NDArray[np.int64]
    pcm: NDArray[np.int16]
    voice: str
    persona: str
    sampling: Sampling

    @property
    def audio(self) -> CallAudio:
        """Both sides, for measuring."""
        return CallAudio(user=self.frames.reshape(-1), agent=self.pcm.reshape(-1))

    @staticmethod
    def read(path: Path) -> "RecordedCall":
        """Read a recording."""
        with safe_open(path, framework="numpy") as file:
            about = file.metadata()
            return RecordedCall(
                frames=file.get_tensor("frames"),
                tokens=file.get_tensor("tokens"),
                pcm=file.get_tensor("pcm"),
                voice=about["voice"],
                persona=about["persona"],
                sampling=Sampling(**json.loads(about["sampling"])),
            )


def replay(call: RecordedCall) -> OfflineConversation:
    """Hold the conversation again, offline, over exactly the frames that the engine was given."""
    core = _core()
    plan = core.prepare(call.voice, call.persona)
    unheard = np.zeros((1, FRAME_SAMPLES), dtype=np.int16)
    return converse(core, plan, call.sampling, list(np.concatenate([call.frames, unheard])))


@functools.cache
def _core() -> EngineCore:
    settings = EngineSettings(model=str(TINY16), device="cpu", dtype="float32", slots=1)
    return EngineCore.load(settings)
