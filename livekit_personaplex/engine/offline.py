"""A conversation without a clock: a whole recording in, what the agent says meanwhile out.

The same core, step by step as in a call, so that a call can be checked against it: step n hears
user frames 0 to n-1 and gives agent frame n.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_MS
from livekit_personaplex.engine.core_protocol import AgentStep, Core, TextDecoder
from livekit_personaplex.model.prompt import PromptPlan
from livekit_personaplex.sampling import Sampling

_SLOT = 0


@dataclass(frozen=True, slots=True)
class OfflineConversation:
    """What the agent said to a recording of N frames.

    Attributes:
        tokens: ``[9, N] int64`` text token, then the agent's 8 codes.
        pcm: ``[N * 1920] int16``.
        texts: What each frame adds to the agent's words; N entries.
    """

    tokens: NDArray[np.int64]
    pcm: NDArray[np.int16]
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The agent's words."""
        return "".join(self.texts)

    def timed_texts(self) -> list[tuple[int, str]]:
        """(milliseconds from the start, words) of every frame that adds words."""
        return [(index * FRAME_MS, text) for index, text in enumerate(self.texts) if text]


@dataclass(slots=True)
class Dialogue:
    """A conversation on its way: what its caller says next, and what its agent has said.

    Attributes:
        frames: User frames, ``[1920]`` each, at least one; the last one is heard by nobody.
        decoder: Of the agent's words.
        steps: What the agent has said.
        texts: In words.
    """

    frames: Sequence[NDArray[np.int16]]
    decoder: TextDecoder
    steps: list[AgentStep] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether every frame has its answer."""
        return len(self.steps) == len(self.frames)

    def next_heard(self) -> NDArray[np.int16] | None:
        """Give the user frame that goes into the next step; None for the first."""
        return self.frames[len(self.steps) - 1] if self.steps else None

    def take(self, step: AgentStep) -> None:
        """Keep what a step said."""
        self.steps.append(step)
        self.texts.append(self.decoder.push(int(step.tokens[0])))

    def result(self) -> OfflineConversation:
        """Put together what the agent has said."""
        tokens = np.stack([step.tokens for step in self.steps], axis=1)
        pcm = np.concatenate([step.pcm for step in self.steps])
        return OfflineConversation(tokens, pcm, tuple(self.texts))


def converse(
    core: Core,
    plan: PromptPlan,
    sampling: Sampling,
    frames: Sequence[NDArray[np.int16]],
    *,
    on_frame: Callable[[], object] = lambda: None,
) -> OfflineConversation:
    """Hold one conversation in the core's first slot and give the slot back.

    Args:
        core: With its first slot free and nothing else running.
        plan: The system prompt, from ``core.prepare``.
        sampling: With a seed set.
        frames: User frames, ``[1920]`` each; the last one is heard by nobody.
        on_frame: Called after every frame.
    """
    dialogue = Dialogue(frames, core.text_decoder())
    core.open(_SLOT, plan, sampling)
    try:
        while _SLOT not in core.tick({}).opened:
            pass
        while not dialogue.is_done:
            (step,) = core.tick({_SLOT: dialogue.next_heard()}).steps
            dialogue.take(step)
            on_frame()
    finally:
        core.close(_SLOT)
    return dialogue.result()
