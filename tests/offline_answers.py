"""What ``offline`` says to a caller, to compare calls with."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import split_frames
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.offline import OfflineConversation, converse
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from tests.gst_harness import TINY

Answer = Callable[[NDArray[np.int16]], OfflineConversation]


def make_answer() -> Answer:
    """Load the small checkpoint; gives what offline says to some audio, greedy, without persona."""
    checkpoint = str(TINY / "checkpoint")
    settings = EngineSettings(model=checkpoint, device="cpu", dtype="float32", slots=1)
    core = EngineCore.load(settings)
    plan = core.prepare("TINY0", "")

    def answer(pcm: NDArray[np.int16]) -> OfflineConversation:
        return converse(core, plan, Sampling(greedy=True, seed=1), split_frames(pcm))

    return answer
