"""The two things a tick does on the device, over tensors that are made once.

A stage reads its inputs from static tensors, works on the engine's state in place and leaves its
outputs in static tensors, so that calling it and replaying a recording of it are the same thing.

Legend: B slots of a group, R prompt rows, E model width.
"""

from dataclasses import dataclass

import torch

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_TOKEN_ROWS
from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.model.lm_state import LmState
from livekit_personaplex.model.mimi import MimiState
from livekit_personaplex.model.personaplex import PersonaPlex


@dataclass(frozen=True, slots=True)
class EngineState:
    """State of all conversations, ``[slots, ...]``."""

    lm: LmState
    encoder: MimiState
    decoder: MimiState

    def view(self, group: slice) -> "EngineState":
        """Views of a contiguous range of slots; writes go to the whole."""
        return EngineState(self.lm.view(group), self.encoder.view(group), self.decoder.view(group))


@dataclass(frozen=True, slots=True)
class LiveStage:
    """One live step of every slot of a group: hear a frame, think, speak a frame.

    Attributes:
        model: Weights.
        state: View of the group.
        pcm_in: ``[B, 1920] int16`` user frames; read where ``has_user``.
        has_user: ``[B] bool``.
        exec_mask: ``[B] bool`` which slots step.
        pcm_out: ``[B, 1920] int16`` agent frames.
        tokens_out: ``[B, 9] int64``.
        said_out: ``[B] int64`` given tokens said so far.
        speaks: Whether the agent's codes become audio; without, ``pcm_out`` stays silent.
    """

    model: PersonaPlex
    state: EngineState
    pcm_in: torch.Tensor
    has_user: torch.Tensor
    exec_mask: torch.Tensor
    pcm_out: torch.Tensor
    tokens_out: torch.Tensor
    said_out: torch.Tensor
    speaks: bool

    @staticmethod
    def create(model: PersonaPlex, state: EngineState, *, speaks: bool = True) -> "LiveStage":
        """Make the static tensors for the group that ``state`` views."""
        num_slots, device = state.lm.offsets.shape[0], state.lm.offsets.device

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return LiveStage(
            model=model,
            state=state,
            pcm_in=zeros(num_slots, FRAME_SAMPLES, dtype=torch.int16),
            has_user=zeros(num_slots, dtype=torch.bool),
            exec_mask=zeros(num_slots, dtype=torch.bool),
            pcm_out=zeros(num_slots, FRAME_SAMPLES, dtype=torch.int16),
            tokens_out=zeros(num_slots, NUM_TOKEN_ROWS, dtype=torch.int64),
            said_out=zeros(num_slots, dtype=torch.int64),
            speaks=speaks,
        )

    def run(self) -> None:
        """Step the group. Never synchronises with a GPU."""
        samples = self.pcm_in.to(torch.float32) * (1.0 / 32768.0)
        user_codes = self.model.mimi.encoder.encode(samples, self.state.encoder, self.has_user)
        # the text token that a step gives out was drawn in the step before
        self.said_out.copy_(self.state.lm.steering.said)
        output = self.model.lm.step(
            self.state.lm,
            user_codes=user_codes,
            has_user=self.has_user,
            exec_mask=self.exec_mask,
        )
        self.tokens_out.copy_(output.tokens)
        if not self.speaks:
            return
        spoken = self.model.mimi.decoder.decode(
            output.tokens[:, 1:], self.state.decoder, self.exec_mask
        )
        self.pcm_out.copy_((spoken * 32768.0).round().clamp(-32768.0, 32767.0))


@dataclass(frozen=True, slots=True)
class PromptStage:
    """Prompt positions of conversations being opened, any number of rows of one slot.

    Attributes:
        model: Weights.
        state: Of all slots.
        columns: ``[R, 17] int64`` model inputs.
        embeddings: ``[R, E]`` in the model's dtype, used where ``has_embedding``.
        has_embedding: ``[R] bool``.
        rows: Slots, positions and mask.
    """

    model: PersonaPlex
    state: EngineState
    columns: torch.Tensor
    embeddings: torch.Tensor
    has_embedding: torch.Tensor
    rows: Rows

    @staticmethod
    def create(model: PersonaPlex, state: EngineState, *, num_rows: int) -> "PromptStage":
        """Make the static tensors."""
        device = state.lm.offsets.device
        width = model.config.temporal_config.hidden_size

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return PromptStage(
            model=model,
            state=state,
            columns=zeros(num_rows, len(model.config.delays), dtype=torch.int64),
            embeddings=zeros(num_rows, width, dtype=model.lm.embeddings.dtype),
            has_embedding=zeros(num_rows, dtype=torch.bool),
            rows=Rows(
                slots=zeros(num_rows, dtype=torch.int64),
                positions=zeros(num_rows, dtype=torch.int64),
                mask=zeros(num_rows, dtype=torch.bool),
            ),
        )

    def run(self) -> None:
        """Run the rows, leaving keys and values behind. Never synchronises with a GPU."""
        embedded = self.model.lm.embed(self.columns)
        x = torch.where(self.has_embedding.unsqueeze(1), self.embeddings, embedded)
        self.model.lm.prompt(x, self.rows, self.state.lm)
