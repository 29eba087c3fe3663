"""The first stage: what agents say to recordings, as codes and words, and as audio if wanted.

Every slot of a core holds a conversation; the core runs all of them as one batch, on a CPU too:
there is no call that would have to wait for the others.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.engine.core import EngineCore, load_model
from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.offline import Dialogue
from livekit_personaplex.engine.sizing import choose_sizes
from livekit_personaplex.engine.voice_file import prepare_prompt
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.prompt import PromptPlan
from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.settings import EngineSettings

MAX_KEPT_PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Conversation:
    """One job of this stage.

    Attributes:
        job: What was asked for.
        num_samples: Length of its recording at 24 kHz.
        plan: Its system prompt.
        sampling: Its job's, with a seed.
        dialogue: How far it is.
    """

    job: Job
    num_samples: int
    plan: PromptPlan
    sampling: Sampling
    dialogue: Dialogue

    @property
    def is_done(self) -> bool:
        """Whether every frame has its answer."""
        return self.dialogue.is_done


class TalkerLanes:
    """A core's slots, for `keep_busy`."""

    def __init__(self, core: Core) -> None:
        """Take over a core with every slot free."""
        self._core = core
        self._opening: set[int] = set()

    @property
    def num_slots(self) -> int:
        """Conversations at a time."""
        return self._core.num_slots

    def begin(self, slot: int, work: Conversation) -> None:
        """Open a conversation; its prompt runs with the next step."""
        self._core.open(slot, work.plan, work.sampling)
        self._opening.add(slot)

    def advance(self, busy: Mapping[int, Conversation]) -> None:
        """Finish the prompts that wait, then step every conversation."""
        while self._opening:
            self._opening.difference_update(self._core.tick({}).opened)
        heard = {slot: work.dialogue.next_heard() for slot, work in busy.items()}
        for step in self._core.tick(heard).steps:
            busy[step.slot].dialogue.take(step)

    def end(self, slot: int) -> None:
        """Close a conversation."""
        self._core.close(slot)
        self._opening.discard(slot)


def load_talker(settings: EngineSettings, *, max_slots: int, speaks: bool) -> EngineCore:
    """Load a core that runs all its slots as one batch. Blocks for long.

    Args:
        settings: Of the engine.
        max_slots: No more slots than this, however many fit: idle ones cost time.
        speaks: Whether codes become audio.

    Raises:
        CheckpointError: The model's files cannot be used.
        ConfigError: Device or slots cannot be used as set.
    """
    model = load_model(settings)
    sizes = choose_sizes(
        model.config,
        device=model.device,
        kv_dtype=FP8 if settings.kv == "fp8" else model.dtype,
        num_slots=settings.slots,
    )
    num_slots = min(sizes.num_slots, max_slots)
    return EngineCore(
        model, replace(sizes, num_slots=num_slots, group_slots=num_slots), speaks=speaks
    )


class ConversationMaker:
    """Makes the conversations of jobs."""

    def __init__(self, core: EngineCore) -> None:
        """Make them for a core."""
        self._core = core
        self._prepare = lru_cache(MAX_KEPT_PROMPTS)(partial(prepare_prompt, core))

    def make(
        self, job: Job, frames: Sequence[NDArray[np.int16]], *, num_samples: int
    ) -> Conversation:
        """Lay out a job's prompt, or take one of the same voice and persona; draw its seed.

        Raises:
            ConfigError: The voice is unknown, or cannot be used, or the persona is too long.
        """
        plan = self._prepare(job.voice, job.persona)
        sampling = job.sampling
        if sampling.seed is None:
            sampling = replace(sampling, seed=secrets.randbelow(MAX_SEED + 1))
        dialogue = Dialogue(frames, self._core.text_decoder())
        return Conversation(job, num_samples, plan, sampling, dialogue)
