"""State of the language model for every slot: made once, written in place, never rebound.

Legend: S slots, 17 token rows, 4 ring columns.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.steering import Steering
from livekit_personaplex.sampling import MIN_TEMPERATURE, Sampling

RING_COLUMNS = 4
"""Columns of the token ring: the longest acoustic delay plus the three columns one step touches."""


@dataclass(frozen=True, slots=True)
class LmState:
    """Everything one conversation is, apart from Mimi.

    Attributes:
        offsets: ``[S] int64`` step counter t; the next live step runs position t - 1.
        tokens: ``[S, 17, 4] int64`` token ring, column = step mod 4.
        provided: ``[S, 17, 4] bool`` entries that were given and must not be sampled over.
        rings: Keys and values of the temporal transformer.
        steering: Words that the model is given to say.
        seeds: ``[S] int64``.
        text_temperatures: ``[S] float32``, 0 = greedy.
        audio_temperatures: ``[S] float32``, 0 = greedy.
        text_top_ks: ``[S] int64``.
        audio_top_ks: ``[S] int64``.
    """

    offsets: torch.Tensor
    tokens: torch.Tensor
    provided: torch.Tensor
    rings: KvRings
    steering: Steering
    seeds: torch.Tensor
    text_temperatures: torch.Tensor
    audio_temperatures: torch.Tensor
    text_top_ks: torch.Tensor
    audio_top_ks: torch.Tensor

    @staticmethod
    def create(
        config: PersonaPlexConfig,
        *,
        num_slots: int,
        capacity: int,
        device: torch.device,
        kv_dtype: torch.dtype,
        word_starts: torch.Tensor | None = None,
    ) -> "LmState":
        """Allocate zeroed state.

        Args:
            config: Model sizes.
            num_slots: S.
            capacity: C; must be at least the context plus the prompt rows of one tick.
            device: Where the state lives.
            kv_dtype: Dtype of keys and values.
            word_starts: ``[text vocabulary] bool`` which text tokens begin a word; by default all.
        """
        if word_starts is None:
            word_starts = torch.ones(config.text_vocab_size, dtype=torch.bool)
        temporal = config.temporal_config
        rows = config.num_audio_codebooks + 1

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        ring = (
            temporal.num_hidden_layers,
            num_slots,
            temporal.num_attention_heads,
            capacity,
            temporal.head_dim,
        )
        return LmState(
            offsets=zeros(num_slots, dtype=torch.int64),
            tokens=zeros(num_slots, rows, RING_COLUMNS, dtype=torch.int64),
            provided=zeros(num_slots, rows, RING_COLUMNS, dtype=torch.bool),
            rings=KvRings.create(ring, dtype=kv_dtype, device=device),
            steering=Steering.create(num_slots, word_starts.to(device)),
            seeds=zeros(num_slots, dtype=torch.int64),
            text_temperatures=zeros(num_slots, dtype=torch.float32),
            audio_temperatures=zeros(num_slots, dtype=torch.float32),
            text_top_ks=torch.ones(num_slots, dtype=torch.int64, device=device),
            audio_top_ks=torch.ones(num_slots, dtype=torch.int64, device=device),
        )

    def view(self, group: slice) -> "LmState":
        """Views of a contiguous range of slots; writes go to the whole."""
        return LmState(
            offsets=self.offsets[group],
            tokens=self.tokens[group],
            provided=self.provided[group],
            rings=self.rings.view(group),
            steering=self.steering.view(group),
            seeds=self.seeds[group],
            text_temperatures=self.text_temperatures[group],
            audio_temperatures=self.audio_temperatures[group],
            text_top_ks=self.text_top_ks[group],
            audio_top_ks=self.audio_top_ks[group],
        )

    def begin(
        self,
        slot: int,
        *,
        offset: int,
        tokens: NDArray[np.int64],
        provided: NDArray[np.bool_],
        sampling: Sampling,
    ) -> None:
        """Give ``slot`` to a new conversation, as its system prompt leaves it.

        Key rings need no clearing: entries are read only up to the session's own positions.

        Args:
            slot: Which slot.
            offset: t at the first live step.
            tokens: ``[17, 4]`` token ring.
            provided: ``[17, 4]`` flags.
            sampling: With a seed set.
        """
        assert sampling.seed is not None, "the engine chooses a seed before it opens a session"
        self.offsets[slot] = offset
        self.tokens[slot].copy_(torch.from_numpy(tokens))
        self.provided[slot].copy_(torch.from_numpy(provided))
        self.steering.reset(slot)
        self.seeds[slot] = sampling.seed
        self.text_temperatures[slot] = _temperature(sampling, sampling.text_temperature)
        self.audio_temperatures[slot] = _temperature(sampling, sampling.audio_temperature)
        self.text_top_ks[slot] = sampling.text_top_k
        self.audio_top_ks[slot] = sampling.audio_top_k


def _temperature(sampling: Sampling, given: float) -> float:
    """Give the temperature to draw with; 0 is greedy."""
    return 0.0 if sampling.greedy or given < MIN_TEMPERATURE else given
