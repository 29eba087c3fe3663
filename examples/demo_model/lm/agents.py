"""The bank's sound on the device, and the codes of all that agents say.

An agent's utterance has the same codes wherever it is said, so it is encoded once, after silence.

Legend: K code columns of all agent utterances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.model.prompt import SILENCE_CODES

Encode = Callable[[torch.Tensor], torch.Tensor]
"""Codec: ``[B, 1, n * 1920] float32`` to ``[B, 8, n]`` codes."""
TAIL_FRAMES = 4
SILENCE_COLUMN = 0
"""Code column that holds the silence."""


@dataclass(frozen=True, slots=True)
class Utterances:
    """The bank's sound on the device.

    Attributes:
        audio: ``[samples] int16``.
        start: First sample of each utterance.
        frames: Length of each in frames.
    """

    audio: torch.Tensor
    start: NDArray[np.int64]
    frames: NDArray[np.int32]

    def samples(self, utterance: int, num_frames: int | None = None) -> torch.Tensor:
        """``[n * 1920] float32`` of an utterance, or of its first frames."""
        count = int(self.frames[utterance]) if num_frames is None else num_frames
        first = int(self.start[utterance])
        return self.audio[first : first + count * FRAME_SAMPLES].float() / 32768.0


@dataclass(frozen=True, slots=True)
class AgentCodes:
    """Codes of all that agents say; the first column is the silence.

    Attributes:
        codes: ``[8, K] int16`` on the device.
        start: Utterance to its first column.
        frames: Utterance to its number of columns, the tail of silence included.
    """

    codes: torch.Tensor
    start: dict[int, int]
    frames: dict[int, int]


@torch.no_grad()
def encode_agents(
    sounds: Utterances,
    spoken: Sequence[int],
    prompts: dict[int, torch.Tensor],
    encode: Encode,
    *,
    lead_frames: int,
    at_once: int = 64,
) -> AgentCodes:
    """Encode every agent utterance once.

    Args:
        sounds: The bank.
        spoken: Utterances, encoded after ``lead_frames`` of silence and with a tail of silence.
        prompts: Voice prompts by utterance, ``[n * 1920] float32`` as loud as the product makes
            them; encoded from the start of a stream.
        encode: The codec.
        lead_frames: More than the codec's window.
        at_once: Utterances of one batch.
    """
    device = sounds.audio.device
    columns = [torch.tensor(SILENCE_CODES, device=device).unsqueeze(1).short()]
    start, frames, total = {}, {}, 1
    for utterance, samples in prompts.items():
        columns.append(encode(samples.view(1, 1, -1))[0].short())
        start[utterance], frames[utterance] = total, columns[-1].shape[1]
        total += frames[utterance]
    ordered = sorted(spoken, key=lambda utterance: int(sounds.frames[utterance]))
    for first in range(0, len(ordered), at_once):
        group = ordered[first : first + at_once]
        length = lead_frames + int(sounds.frames[group[-1]]) + TAIL_FRAMES
        track = torch.zeros(len(group), length * FRAME_SAMPLES, device=device)
        for row, utterance in enumerate(group):
            samples = sounds.samples(utterance)
            begin = lead_frames * FRAME_SAMPLES
            track[row, begin : begin + len(samples)] = samples
        codes = encode(track.unsqueeze(1)).short()
        for row, utterance in enumerate(group):
            count = int(sounds.frames[utterance]) + TAIL_FRAMES
            columns.append(codes[row, :, lead_frames : lead_frames + count])
            start[utterance], frames[utterance] = total, count
            total += count
    return AgentCodes(torch.cat(columns, 1), start, frames)
