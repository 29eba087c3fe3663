"""One step of the language model for a group of slots, and prompt positions of any slots.

The step is run one frame ahead of the reference: its output does not depend on the user frame
that the reference gives to it, so step n runs when user frame n - 1 is in, with the same tokens.

Source: NVIDIA/personaplex models/lm.py, LMGen.step.
Legend: B slots of a group, R prompt rows, E model width, 17 token rows.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.kernels.token_sampling import sample_tokens
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.depformer import Depformer
from livekit_personaplex.model.lm_state import RING_COLUMNS, LmState
from livekit_personaplex.model.temporal import TemporalTransformer


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one live step gives.

    Attributes:
        tokens: ``[B, 9] int64``: text, then the agent's codes of the frame now complete.
        text_logits: ``[B, text vocabulary]``.
        audio_logits: One ``[B, card]`` per inner step.
    """

    tokens: torch.Tensor
    text_logits: torch.Tensor
    audio_logits: list[torch.Tensor]


class LanguageModel:
    """Embeddings, temporal transformer, heads and depformer; holds no conversation's state."""

    def __init__(
        self,
        config: PersonaPlexConfig,
        *,
        embeddings: torch.Tensor,
        temporal: TemporalTransformer,
        text_head: torch.Tensor,
        depformer: Depformer,
    ) -> None:
        """Put loaded weights together.

        Args:
            config: Sizes.
            embeddings: ``[rows of all tables + 1, E]``: text table, 16 audio tables, a zero row.
            temporal: The backbone.
            text_head: ``[text vocabulary, E]``.
            depformer: The inner transformer.
        """
        self.config = config
        self.embeddings = embeddings
        self.temporal = temporal
        self.text_head = text_head
        self.depformer = depformer
        device = embeddings.device
        num_agent = config.depformer_config.num_active_codebooks
        self.num_agent_rows = 1 + num_agent
        table_rows = [config.text_embedding_rows]
        table_rows += [config.audio_vocab_size + 1] * config.num_audio_codebooks
        starts = torch.tensor([0, *table_rows[:-1]], dtype=torch.int64, device=device).cumsum(0)
        self._table_starts = starts
        self._zero_row = sum(table_rows)
        self._delays = torch.tensor(config.delays, dtype=torch.int64, device=device)

    def embed(self, columns: torch.Tensor) -> torch.Tensor:
        """Sum the embeddings of token columns; id -1 counts as zeros.

        Args:
            columns: ``[R, 17] int64``.

        Returns:
            ``[R, E]`` in the model's dtype, summed in float32.
        """
        ids = torch.where(columns < 0, self._zero_row, columns + self._table_starts)
        return (
            F.embedding(ids, self.embeddings).sum(1, dtype=torch.float32).to(self.embeddings.dtype)
        )

    def prompt(self, x: torch.Tensor, rows: Rows, state: LmState) -> None:
        """Run prompt positions, which are all forced: only keys and values are left behind.

        Args:
            x: ``[R, E]`` summed embeddings.
            rows: What the rows stand for.
            state: Whole state; its rings are written.
        """
        self.temporal.forward(x, rows, state.rings)

    def step(
        self,
        state: LmState,
        *,
        user_codes: torch.Tensor,
        has_user: torch.Tensor,
        exec_mask: torch.Tensor,
    ) -> StepOutput:
        """Run one live step of every slot in the group; advances ``state`` in place.

        Args:
            state: View of the group.
            user_codes: ``[B, 8] int64`` codes of the user frame before this step.
            has_user: ``[B] bool``: False for a session's first step, which needs none.
            exec_mask: ``[B] bool``: False rows leave no trace and give meaningless output.

        Returns:
            Tokens and logits. No host synchronisation on a GPU.
        """
        steps = state.offsets
        self._write_user(state, user_codes, has_user)
        columns = _column(state.tokens, steps - 1)
        rows = Rows(
            slots=torch.arange(steps.shape[0], device=steps.device),
            positions=steps - 1,
            mask=exec_mask,
        )
        hidden = self.temporal.forward(self.embed(columns), rows, state.rings)
        text_logits = F.linear(hidden, self.text_head)
        targets = _column(state.tokens, steps)
        given = _column(state.provided, steps)
        sampled = sample_tokens(
            text_logits,
            temperatures=state.text_temperatures,
            top_ks=state.text_top_ks,
            seeds=state.seeds,
            steps=steps,
            codebook=0,
        )
        steered = state.steering.choose(
            sampled, previous=columns[:, 0], mask=exec_mask & ~given[:, 0]
        )
        text = torch.where(given[:, 0], targets[:, 0], steered)
        audio_logits: list[torch.Tensor] = []

        def draw_token(inner_step: int, logits: torch.Tensor) -> torch.Tensor:
            audio_logits.append(logits)
            row = inner_step + 1
            drawn = sample_tokens(
                logits,
                temperatures=state.audio_temperatures,
                top_ks=state.audio_top_ks,
                seeds=state.seeds,
                steps=steps,
                codebook=row,
            )
            return torch.where(given[:, row], targets[:, row], drawn)

        codes = self.depformer.forward(hidden, text, draw_token)
        frame = torch.cat((text.unsqueeze(1), codes), dim=1)
        self._write_frame(state, frame, exec_mask)
        tokens = self._read_output(state)
        steps.add_(exec_mask)
        return StepOutput(tokens, text_logits, audio_logits)

    def _write_user(self, state: LmState, user_codes: torch.Tensor, has_user: torch.Tensor) -> None:
        """Put the codes of the frame before this step where the reference would have."""
        first = self.num_agent_rows
        columns = (state.offsets.unsqueeze(1) - 1 + self._delays[first:]) % RING_COLUMNS
        ring = state.tokens[:, first:]
        old = ring.gather(2, columns.unsqueeze(2))
        new = torch.where(has_user.view(-1, 1, 1), user_codes.unsqueeze(2), old)
        ring.scatter_(2, columns.unsqueeze(2), new)

    def _write_frame(self, state: LmState, frame: torch.Tensor, exec_mask: torch.Tensor) -> None:
        """Write what was drawn into the target column and free the input column's flags."""
        agent = state.tokens[:, : self.num_agent_rows]
        columns = torch.arange(RING_COLUMNS, device=frame.device)
        mask = exec_mask.unsqueeze(1)
        is_target = (columns == (state.offsets % RING_COLUMNS).unsqueeze(1)) & mask
        is_input = (columns == ((state.offsets - 1) % RING_COLUMNS).unsqueeze(1)) & mask
        agent.copy_(torch.where(is_target.unsqueeze(1), frame.unsqueeze(2), agent))
        state.provided.logical_and_(~is_input.unsqueeze(1))

    def _read_output(self, state: LmState) -> torch.Tensor:
        delays = self._delays[: self.num_agent_rows]
        columns = (state.offsets.unsqueeze(1) - 1 + delays) % RING_COLUMNS
        return state.tokens[:, : self.num_agent_rows].gather(2, columns.unsqueeze(2)).squeeze(2)


def _column(ring: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """``[B, 17]``: the ring's column of each slot's step."""
    index = (steps % RING_COLUMNS).view(-1, 1, 1).expand(-1, ring.shape[1], 1)
    return ring.gather(2, index).squeeze(2)
