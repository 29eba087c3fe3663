"""Random crops of the bank for the codec's training, made on the device without waiting for it.

A crop of an agent lies on the frame grid, as its utterances do in a call: a pause, an utterance, a
pause, another one; now and then an utterance is cut off at a frame (a barge-in), and some crops
hold nothing. Callers' crops begin anywhere and go through a bad line.

Legend: B crops, F frames of a crop, N = 1920 F samples, L = 4 F labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from examples.demo_model.speech.utterance import LABEL
from livekit_personaplex.audio import FRAME_SAMPLES

Line = Callable[[Tensor, torch.Generator, Tensor | None], Tensor]
"""What a caller's line does to his speech: ``line.degrade``."""
_LEAD_FRAMES = 5
_GAP_FRAMES = 12
_CUT, _SILENT, _LOUDER = 0.12, 0.04, 0.15
_SMALLEST_CUT = 3


class Utterances(Protocol):
    """The part of a bank that is read here."""

    @property
    def start(self) -> NDArray[np.int64]:
        """``[utterances]`` first samples."""

    @property
    def frames(self) -> NDArray[np.int32]:
        """``[utterances]`` lengths in frames."""


class Crops(NamedTuple):
    """A batch.

    Attributes:
        audio: ``[B, N] float32``.
        labels: ``[B, L] int64`` phoneme of each 20 ms, 0 pause, -1 unknown.
        cut: ``[B, 2] int64`` first and last + 1 frame of the silence after a cut; equal for none.
    """

    audio: Tensor
    labels: Tensor
    cut: Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of a batch that are drawn from the same utterances.

    Attributes:
        rows: How many.
        utterances: Indices into the bank.
        is_caller: Whether they come over a line.
    """

    rows: int
    utterances: Sequence[int] | NDArray[np.int64]
    is_caller: bool


class CropSource:
    """Draws batches from audio that lies on the device."""

    def __init__(
        self,
        audio: Tensor,
        labels: Tensor,
        bank: Utterances,
        *,
        frames: int,
        seed: int,
        line: Line | None = None,
    ) -> None:
        """Hold the bank.

        Args:
            audio: ``[samples] int16``.
            labels: ``[samples / 480] int16``.
            bank: Where utterances are.
            frames: F.
            seed: Of all draws.
            line: For callers; None leaves them as they are.
        """
        self._audio, self._labels, self._line = audio, labels, line
        device = audio.device
        self._start = torch.as_tensor(np.asarray(bank.start), device=device).long()
        self._frames = torch.as_tensor(np.asarray(bank.frames), device=device).long()
        self._length = frames
        self.generator = torch.Generator(device).manual_seed(seed)
        self._samples = torch.arange(frames * FRAME_SAMPLES, device=device)
        self._slots = (
            torch.arange(frames * (FRAME_SAMPLES // LABEL), device=device) * LABEL + LABEL // 2
        )

    def groups(self, *groups: Group) -> list[tuple[Group, Tensor]]:
        """Put the groups' utterances on the device, once for many draws."""
        device = self._audio.device
        return [
            (g, torch.as_tensor(np.asarray(g.utterances), device=device).long()) for g in groups
        ]

    def draw(self, groups: list[tuple[Group, Tensor]]) -> Crops:
        """Draw a batch, group after group."""
        drawn = [self._crops(group, chosen) for group, chosen in groups]
        audio = torch.cat([crops.audio for crops in drawn])
        for position, (group, _) in enumerate(groups):
            if group.is_caller and self._line is not None:
                first = sum(g.rows for g, _ in groups[:position])
                rows = slice(first, first + group.rows)
                leak = audio[: group.rows] if group.rows <= first else None
                audio[rows] = self._line(audio[rows], self.generator, leak)
        return Crops(audio, torch.cat([c.labels for c in drawn]), torch.cat([c.cut for c in drawn]))

    def _crops(self, group: Group, chosen: Tensor) -> Crops:
        pick = (self._uniform(group.rows) * len(chosen)).long()
        one, two = chosen[pick], chosen[(pick + 1) % len(chosen)]
        length = self._frames[one]
        lead = _LEAD_FRAMES
        offset = (self._uniform(group.rows) * (length + lead - 2)).long() - lead
        gap = (self._uniform(group.rows).square() * _GAP_FRAMES).long()
        cut = length
        if not group.is_caller:
            spot = _SMALLEST_CUT + (self._uniform(group.rows) * (length - _SMALLEST_CUT)).long()
            is_cut = self._uniform(group.rows) < _CUT
            cut = torch.where(is_cut, torch.minimum(spot, length), length)
            gap = torch.where(is_cut, gap + 6, gap)
        shift = offset * FRAME_SAMPLES
        if group.is_caller:
            shift = shift + (self._uniform(group.rows) * FRAME_SAMPLES).long()
        where = _Where(self._start[one], self._start[two], length, self._frames[two], cut, gap)
        index, heard = where(shift.unsqueeze(1) + self._samples)
        gain = self._gain(group)
        samples = self._audio.index_select(0, index.flatten()).view_as(index)
        audio = samples.float().mul_(heard).mul_(gain.unsqueeze(1) / 32768)
        slot_index, spoken = where(shift.unsqueeze(1) + self._slots)
        labels = self._labels[slot_index // LABEL].long() * (spoken & (gain > 0).unsqueeze(1))
        silence = torch.stack((cut, length + gap), dim=1) - offset.unsqueeze(1)
        silence = silence.clamp(0, self._length)
        silence[:, 1] = torch.where(cut < length, silence[:, 1], silence[:, 0])
        return Crops(audio, labels, silence)

    def _gain(self, group: Group) -> Tensor:
        """Silence now and then; an agent is sometimes louder or softer, as voice prompts are."""
        gain = (self._uniform(group.rows) >= _SILENT).float()
        if group.is_caller:
            return gain
        decibel = self._uniform(group.rows) * 8 - 5
        changed = self._uniform(group.rows) < _LOUDER
        return gain * 10 ** (decibel / 20 * changed)

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, device=self._audio.device, generator=self.generator)


@dataclass(frozen=True, slots=True)
class _Where:
    """Two utterances in a row: where in the bank the samples of a track are, ``[B]`` each."""

    first: Tensor
    second: Tensor
    first_frames: Tensor
    second_frames: Tensor
    cut: Tensor
    gap: Tensor

    def __call__(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Track positions ``[B, M]`` in samples to places in the bank, and whether there is one."""
        later = position - ((self.first_frames + self.gap) * FRAME_SAMPLES).unsqueeze(1)
        in_first = (position >= 0) & (position < (self.cut * FRAME_SAMPLES).unsqueeze(1))
        in_second = (later >= 0) & (later < (self.second_frames * FRAME_SAMPLES).unsqueeze(1))
        place = torch.where(
            in_first, self.first.unsqueeze(1) + position, self.second.unsqueeze(1) + later
        )
        heard = in_first | in_second
        return place.masked_fill(~heard, 0), heard
