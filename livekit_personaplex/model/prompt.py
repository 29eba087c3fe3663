"""The system prompt of a conversation, laid out on the host as positions to run.

Everything in it is forced, so the model's input at each position is known before anything runs;
positions can then be run as rows beside live conversations, in any grouping. Pure numpy.

Source: NVIDIA/personaplex models/lm.py, LMGen.step_system_prompts.
Legend: P positions, F voice frames, T voice embeddings, E model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.lm_state import RING_COLUMNS
from livekit_personaplex.model.voices import Voice

SILENCE_CODES = (948, 243, 1178, 546, 1736, 1030, 1978, 2008)
SINE_CODES = (430, 1268, 381, 1611, 1095, 1495, 56, 472)
PAD_TOKEN = 3
SILENCE_FRAMES = 6
SYSTEM_TAG = "<system>"


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """One system prompt, ready to run.

    Attributes:
        columns: ``[P, 17] int64`` model input at each position.
        embeddings: ``[T, E] float32`` summed inputs that replace the first T columns.
        first_step: t at the first live step; P is one less.
        tokens: ``[17, 4] int64`` token ring at the first live step.
        provided: ``[17, 4] bool`` flags of the ring.
    """

    columns: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    first_step: int
    tokens: NDArray[np.int64]
    provided: NDArray[np.bool_]

    @property
    def num_positions(self) -> int:
        """P."""
        return len(self.columns)


def tag_persona(persona: str) -> str:
    """Wrap a persona in the tags the model was trained with; empty stays empty.

    A persona that already begins and ends with the tag is left as it is.
    """
    text = persona.strip()
    if not text or (text.startswith(SYSTEM_TAG) and text.endswith(SYSTEM_TAG)):
        return text
    return f"{SYSTEM_TAG} {text} {SYSTEM_TAG}"


def max_persona_tokens(config: PersonaPlexConfig) -> int:
    """Longest persona that is taken: two thirds of the window, and never under 200 tokens."""
    return max(200, config.temporal_config.context * 2 // 3)


def build_prompt(config: PersonaPlexConfig, voice: Voice, persona_ids: Sequence[int]) -> PromptPlan:
    """Lay out voice, silence, persona and silence.

    Args:
        config: Sizes and delays.
        voice: Codes or embeddings of the voice prompt.
        persona_ids: Token ids of the tagged persona; empty for none.

    Raises:
        ConfigError: The persona is too long for the model's window.
    """
    limit = max_persona_tokens(config)
    if len(persona_ids) > limit:
        raise ConfigError(
            f"the persona has {len(persona_ids)} tokens, but at most {limit} fit the model's "
            f"window of {config.temporal_config.context} steps; shorten it"
        )
    writer = _ForcedColumns(config)
    embeddings = np.zeros((0, config.temporal_config.hidden_size), dtype=np.float32)
    if voice.codes is not None:
        for codes in voice.codes.T:
            writer.force(PAD_TOKEN, codes)
    else:
        assert voice.embeddings is not None and voice.cache is not None
        embeddings = voice.embeddings
        writer.skip(len(embeddings), voice.cache)
    silence = np.array(SILENCE_CODES)
    texts = [PAD_TOKEN] * SILENCE_FRAMES + list(persona_ids) + [PAD_TOKEN] * SILENCE_FRAMES
    for text in texts:
        writer.force(text, silence)
    return PromptPlan(
        columns=np.array(writer.columns, dtype=np.int64),
        embeddings=embeddings,
        first_step=writer.step,
        tokens=writer.tokens,
        provided=writer.provided,
    )


class _ForcedColumns:
    """The token ring run over forced steps: the model step's bookkeeping without the model."""

    def __init__(self, config: PersonaPlexConfig) -> None:
        self.delays = np.array(config.delays)
        self.num_rows = len(self.delays)
        self.initial = np.full(self.num_rows, config.audio_vocab_size)
        self.initial[0] = config.text_vocab_size
        self.step = 0
        self.columns: list[NDArray[np.int64]] = []
        self.tokens = np.zeros((self.num_rows, RING_COLUMNS), dtype=np.int64)
        self.provided = np.zeros((self.num_rows, RING_COLUMNS), dtype=np.bool_)

    def force(self, text: int, agent_codes: NDArray[np.integer]) -> None:
        """One step with every row given; the user side hears the sine."""
        rows = np.arange(self.num_rows)
        given = np.concatenate(([text], agent_codes, SINE_CODES))
        columns = (self.step + self.delays) % RING_COLUMNS
        self.tokens[rows, columns] = given
        self.provided[rows, columns] = True
        early = self.step <= self.delays
        self.tokens[early, self.step % RING_COLUMNS] = self.initial[early]
        self.provided[early, self.step % RING_COLUMNS] = True
        if self.step == 0:
            self.tokens[:, 0] = self.initial
        else:
            column = (self.step - 1) % RING_COLUMNS
            self.columns.append(self.tokens[:, column].copy())
            self.provided[:, column] = False
        self.step += 1

    def skip(self, num_embeddings: int, cache: NDArray[np.int64]) -> None:
        """A saved voice: its inputs are embeddings, its ring is given as it ended."""
        placeholder = np.full(self.num_rows, -1, dtype=np.int64)
        self.columns.extend(placeholder.copy() for _ in range(num_embeddings))
        self.tokens[...] = cache
        self.step = num_embeddings + 1
