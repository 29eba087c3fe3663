"""What the engine asks of its synchronous core: the model on its slots. No torch here.

`engine.core.EngineCore` is the real one; tests use a fake.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.stats import PersonaLength

if TYPE_CHECKING:  # plans and words are only handed on here
    from livekit_personaplex.model.given_words import GivenWords
    from livekit_personaplex.model.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class AgentStep:
    """What one session's live step gave.

    Attributes:
        slot: The slot it was computed in.
        pcm: ``[1920] int16``.
        tokens: ``[9] int64``: text token, then the agent's 8 codes.
        num_said: Tokens of given words that the conversation has said, this step's included.
    """

    slot: int
    pcm: NDArray[np.int16]
    tokens: NDArray[np.int64]
    num_said: int = 0


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick gave.

    Attributes:
        steps: One for every slot that had a frame.
        opened: Slots whose system prompt is done: they may step from the next tick on.
    """

    steps: list[AgentStep]
    opened: list[int]


class TextDecoder(Protocol):
    """Turns one session's text tokens into words, incrementally."""

    def push(self, token: int) -> str:
        """Take the next token and give the text that is complete now; often none."""
        ...


class Core(Protocol):
    """The model on its slots.

    One thread calls all but `prepare`, `measure_persona`, `prepare_words` and `text_decoder`.
    """

    @property
    def num_slots(self) -> int:
        """Conversations that fit at a time."""
        ...

    @property
    def voices(self) -> Iterable[str]:
        """Names of the voices."""
        ...

    def prepare(self, voice: str, persona: str) -> "PromptPlan":
        """Build a system prompt. Any thread, beside ticks.

        Raises:
            ConfigError: The voice is unknown, or the persona is too long.
        """
        ...

    def measure_persona(self, persona: str) -> PersonaLength:
        """Say how long a persona is. Any thread, beside ticks."""
        ...

    def prepare_words(self, text: str) -> "GivenWords":
        """Lay out words for `say`; without any, the agent is to begin with words of its own.

        Any thread, beside ticks.

        Raises:
            ConfigError: They are too many.
        """
        ...

    def open(self, slot: int, plan: "PromptPlan", sampling: Sampling) -> None:
        """Begin a conversation in a free slot; ``sampling.seed`` is set."""
        ...

    def say(self, slot: int, words: "GivenWords") -> int:
        """Let an open conversation say given words, after those it was given before.

        Returns:
            `AgentStep.num_said` of the step that says the last of them.

        Raises:
            ConfigError: Too many wait to be said already.
        """
        ...

    def stop_saying(self, slot: int) -> None:
        """Take back the given words that are not said yet: they count as said."""
        ...

    def hold(self, slot: int) -> None:
        """Let an open conversation say nothing until `release`."""
        ...

    def release(self, slot: int) -> None:
        """Let it speak, or say the words that it was given."""
        ...

    def close(self, slot: int) -> None:
        """Free a slot, whatever it is doing; it may be opened again at once."""
        ...

    def tick(self, frames: Mapping[int, NDArray[np.int16] | None]) -> TickResult:
        """Step every slot of `frames`; without any, advance waiting system prompts. Blocks.

        Args:
            frames: Slot to the ``[1920] int16`` PCM just heard; None for a slot's first live step.
        """
        ...

    def text_decoder(self) -> TextDecoder:
        """Make the text decoder of one session. Any thread."""
        ...
