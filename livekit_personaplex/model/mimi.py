"""Mimi, the audio codec: 80 ms of PCM to 8 codes and back, frame by frame, for many streams.

Encoder and decoder are separate: a stream may advance in one and not in the other. All state is in
:class:`MimiState`, made once and written in place. Everything is float32 and has fixed shapes, and
nothing here waits for a GPU, so that a call can be recorded as a CUDA graph.

Legend: S slots, B slots of a group, L layers, N ring entries, H heads, D head dim, E width.
"""

from dataclasses import dataclass

import torch

from livekit_personaplex.layers.conv import CausalConv1d, ConvTails, DepthwiseUpsample
from livekit_personaplex.model.config import PersonaPlexMimiConfig
from livekit_personaplex.model.mimi_quantizer import QuantizerDecoder, QuantizerEncoder
from livekit_personaplex.model.mimi_seanet import SeanetDecoder, SeanetEncoder
from livekit_personaplex.model.mimi_transformer import (
    POSITIONS_PER_FRAME,
    MimiTransformer,
    ring_entries,
)


@dataclass(frozen=True, slots=True)
class MimiState:
    """Where each slot's stream stands, in one direction.

    Attributes:
        positions: ``[S] int64`` transformer positions so far, two a frame.
        tails: ``[S, ...] float32`` tails of all convolutions side by side.
        rings: ``[L, S, N, 2, H, D] float32`` keys and values.
    """

    positions: torch.Tensor
    tails: torch.Tensor
    rings: torch.Tensor

    @staticmethod
    def create(
        config: PersonaPlexMimiConfig, tail_sizes: list[int], num_slots: int, device: torch.device
    ) -> "MimiState":
        """Allocate streams that stand at their start."""
        ring = (config.num_hidden_layers, num_slots, ring_entries(config), 2)
        heads = (config.num_attention_heads, config.head_dim)
        return MimiState(
            positions=torch.zeros(num_slots, dtype=torch.int64, device=device),
            tails=torch.zeros(num_slots, sum(tail_sizes), device=device),
            rings=torch.zeros(*ring, *heads, device=device),
        )

    def view(self, group: slice) -> "MimiState":
        """Views of a contiguous range of slots; writes go to the whole."""
        return MimiState(self.positions[group], self.tails[group], self.rings[:, group])

    def reset(self, slot: int) -> None:
        """Put one slot back to the start of a stream. Not inside a tick."""
        self.positions[slot] = 0
        self.tails[slot].zero_()
        self.rings[:, slot].zero_()


@dataclass(frozen=True, slots=True)
class MimiEncoder:
    """PCM to codes.

    Attributes:
        config: Sizes.
        seanet: PCM to 25 vectors a second.
        transformer: Over these.
        downsample: Two vectors to one.
        quantizer: A vector to 8 codes.
    """

    config: PersonaPlexMimiConfig
    seanet: SeanetEncoder
    transformer: MimiTransformer
    downsample: CausalConv1d
    quantizer: QuantizerEncoder

    def init_state(self, num_slots: int, device: torch.device) -> MimiState:
        """Allocate the state of ``num_slots`` streams."""
        return MimiState.create(self.config, self._tail_sizes, num_slots, device)

    def encode(self, pcm: torch.Tensor, state: MimiState, exec_mask: torch.Tensor) -> torch.Tensor:
        """Encode one frame of each stream.

        Args:
            pcm: ``[B, 1920] float32``; rows that do not advance may hold anything.
            state: Of these streams; advanced in place where ``exec_mask`` is True.
            exec_mask: ``[B] bool``.

        Returns:
            ``[B, 8] int64`` codes; undefined where ``exec_mask`` is False.
        """
        tails = ConvTails(state.tails, self._tail_sizes)
        x = self.seanet(pcm, tails)
        x = self.transformer.forward(x, state.rings, state.positions)
        x = self.downsample(x, tails, starts=state.positions == 0)
        tails.commit(exec_mask)
        state.positions.add_(exec_mask, alpha=POSITIONS_PER_FRAME)
        return self.quantizer(x.squeeze(1))

    @property
    def _tail_sizes(self) -> list[int]:
        return [*self.seanet.tail_sizes, self.downsample.tail_size]


@dataclass(frozen=True, slots=True)
class MimiDecoder:
    """Codes to PCM.

    Attributes:
        config: Sizes.
        quantizer: 8 codes to a vector.
        upsample: One vector to two.
        transformer: Over these.
        seanet: 25 vectors a second to PCM.
    """

    config: PersonaPlexMimiConfig
    quantizer: QuantizerDecoder
    upsample: DepthwiseUpsample
    transformer: MimiTransformer
    seanet: SeanetDecoder

    def init_state(self, num_slots: int, device: torch.device) -> MimiState:
        """Allocate the state of ``num_slots`` streams."""
        return MimiState.create(self.config, self._tail_sizes, num_slots, device)

    def decode(
        self, codes: torch.Tensor, state: MimiState, exec_mask: torch.Tensor
    ) -> torch.Tensor:
        """Decode one frame of each stream.

        Args:
            codes: ``[B, 8] int64``; rows that do not advance may hold anything.
            state: Of these streams; advanced in place where ``exec_mask`` is True.
            exec_mask: ``[B] bool``.

        Returns:
            ``[B, 1920] float32`` samples; undefined where ``exec_mask`` is False.
        """
        tails = ConvTails(state.tails, self._tail_sizes)
        x = self.upsample(self.quantizer(codes).unsqueeze(1), tails)
        x = self.transformer.forward(x, state.rings, state.positions)
        pcm = self.seanet(x, tails)
        tails.commit(exec_mask)
        state.positions.add_(exec_mask, alpha=POSITIONS_PER_FRAME)
        return pcm

    @property
    def _tail_sizes(self) -> list[int]:
        return [self.upsample.tail_size, *self.seanet.tail_sizes]


@dataclass(frozen=True, slots=True)
class Mimi:
    """Both directions."""

    encoder: MimiEncoder
    decoder: MimiDecoder
