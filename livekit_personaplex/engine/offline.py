"""A conversation without a clock: a whole recording in, what the agent says meanwhile out.

The same core, step by step as in a call, so that a call can be checked against it: step n hears
user frames 0 to n-1 and gives agent frame n.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_MS
from livekit_personaplex.engine.core_protocol import Core
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
    core.open(_SLOT, plan, sampling)
    try:
        while _SLOT not in core.tick({}).opened:
            pass
        decoder = core.text_decoder()
        tokens, pcm, texts = [], [], []
        for index in range(len(frames)):
            heard = frames[index - 1] if index else None
            (step,) = core.tick({_SLOT: heard}).steps
            tokens.append(step.tokens)
            pcm.append(step.pcm)
            texts.append(decoder.push(int(step.tokens[0])))
            on_frame()
    finally:
        core.close(_SLOT)
    return OfflineConversation(np.stack(tokens, axis=1), np.concatenate(pcm), tuple(texts))
