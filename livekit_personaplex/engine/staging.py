"""Host memory that a tick's inputs and outputs pass through, and the copies to and from it.

On a GPU the memory is pinned, every copy is queued on the one stream, and only fetching results
waits, on an event right behind their copies: what is queued after it is not waited for.

Legend: B slots of a group, R prompt rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.engine.core_protocol import AgentStep
from livekit_personaplex.engine.prompt_queue import PromptBatch
from livekit_personaplex.engine.stages import LiveStage, PromptStage


class CopyFence:
    """Knows when the copies queued before it are done; on a CPU they are at once."""

    def __init__(self, device: torch.device) -> None:
        """Make a fence for the current stream of ``device``."""
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    def set(self) -> None:
        """Stand behind everything queued so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Block until everything before ``set`` is done."""
        if self._event is not None:
            self._event.synchronize()


@dataclass(frozen=True, slots=True)
class LiveStaging:
    """Host twins of a live stage's inputs and outputs.

    Attributes:
        stage: The stage.
        pcm_in: ``[B, 1920] int16``.
        has_user: ``[B] bool``.
        exec_mask: ``[B] bool``.
        pcm_out: ``[B, 1920] int16``.
        tokens_out: ``[B, 9] int64``.
        said_out: ``[B] int64``.
        fence: Behind the outputs' copies.
    """

    stage: LiveStage
    pcm_in: torch.Tensor
    has_user: torch.Tensor
    exec_mask: torch.Tensor
    pcm_out: torch.Tensor
    tokens_out: torch.Tensor
    said_out: torch.Tensor
    fence: CopyFence

    @staticmethod
    def create(stage: LiveStage) -> "LiveStaging":
        """Make the twins."""
        return LiveStaging(
            stage=stage,
            pcm_in=_host_twin(stage.pcm_in),
            has_user=_host_twin(stage.has_user),
            exec_mask=_host_twin(stage.exec_mask),
            pcm_out=_host_twin(stage.pcm_out),
            tokens_out=_host_twin(stage.tokens_out),
            said_out=_host_twin(stage.said_out),
            fence=CopyFence(stage.pcm_in.device),
        )

    def send(self, frames: Mapping[int, NDArray[np.int16] | None]) -> None:
        """Queue the copies of one step's inputs.

        Args:
            frames: Row of the group to its user frame, None where it has none.
        """
        self.has_user.zero_()
        self.exec_mask.zero_()
        for row, pcm in frames.items():
            self.exec_mask[row] = True
            if pcm is not None:
                self.has_user[row] = True
                self.pcm_in[row] = torch.from_numpy(pcm)
        self.stage.pcm_in.copy_(self.pcm_in, non_blocking=True)
        self.stage.has_user.copy_(self.has_user, non_blocking=True)
        self.stage.exec_mask.copy_(self.exec_mask, non_blocking=True)

    def receive(self) -> None:
        """Queue the copies of the outputs."""
        self.pcm_out.copy_(self.stage.pcm_out, non_blocking=True)
        self.tokens_out.copy_(self.stage.tokens_out, non_blocking=True)
        self.said_out.copy_(self.stage.said_out, non_blocking=True)
        self.fence.set()

    def results(self, rows: list[int], first_slot: int) -> list[AgentStep]:
        """Wait for the outputs and take those of ``rows``."""
        self.fence.wait()
        pcm, tokens, said = self.pcm_out.numpy(), self.tokens_out.numpy(), self.said_out.tolist()
        return [
            AgentStep(first_slot + row, pcm[row].copy(), tokens[row].copy(), said[row])
            for row in rows
        ]


@dataclass(frozen=True, slots=True)
class PromptStaging:
    """Host twins of the prompt stage's inputs.

    Attributes:
        stage: The stage.
        columns: ``[R, 17] int64``.
        embeddings: ``[R, E]`` in the model's dtype.
        places: ``[4, R] int64``: slot, position, is a row, has an embedding.
        device_places: Its twin on the device.
        fence: Behind the stage.
    """

    stage: PromptStage
    columns: torch.Tensor
    embeddings: torch.Tensor
    places: torch.Tensor
    device_places: torch.Tensor
    fence: CopyFence

    @staticmethod
    def create(stage: PromptStage) -> "PromptStaging":
        """Make the twins."""
        device_places = stage.columns.new_zeros(4, stage.columns.shape[0])
        return PromptStaging(
            stage=stage,
            columns=_host_twin(stage.columns),
            embeddings=_host_twin(stage.embeddings),
            places=_host_twin(device_places),
            device_places=device_places,
            fence=CopyFence(stage.columns.device),
        )

    def send(self, batch: PromptBatch) -> None:
        """Queue the copies of one batch; the batch before must be finished."""
        count, given = len(batch.columns), len(batch.embeddings)
        num_rows = self.places.shape[1]
        self.columns[:count] = torch.from_numpy(batch.columns)
        self.embeddings[:given] = torch.from_numpy(batch.embeddings)
        row = torch.arange(num_rows)
        self.places[0] = batch.slot
        self.places[1] = batch.first + row
        self.places[2] = row < count
        self.places[3] = row < given
        self.stage.columns.copy_(self.columns, non_blocking=True)
        self.stage.embeddings.copy_(self.embeddings, non_blocking=True)
        self.device_places.copy_(self.places, non_blocking=True)
        self.stage.rows.slots.copy_(self.device_places[0])
        self.stage.rows.positions.copy_(self.device_places[1])
        self.stage.rows.mask.copy_(self.device_places[2])
        self.stage.has_embedding.copy_(self.device_places[3])

    def finish(self) -> None:
        """Wait until the batch that was sent has run."""
        self.fence.set()
        self.fence.wait()


def _host_twin(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
