"""Training columns, laid out exactly as a live conversation's token ring is.

A column is the model's input at one position: text, 8 agent codebooks, 8 user codebooks. Column t
holds frame t of the rows without delay and frame t - 1 of the delayed ones; column 0 is all initial
tokens, so frame 0's text and first codebooks are lost, as in the product. Step t reads column t - 1
and predicts column t.

Legend: F voice frames, P prompt frames, L live frames.
"""

from collections.abc import Sequence

import numpy as np
import torch

from examples.demo_model.device_copy import to_device
from examples.demo_model.sizes import CARD, DELAYS
from livekit_personaplex.audio import NUM_CODEBOOKS
from livekit_personaplex.model.prompt import (
    PAD_TOKEN,
    SILENCE_CODES,
    SILENCE_FRAMES,
    SINE_CODES,
)

NUM_ROWS = len(DELAYS)
AGENT = slice(1, 1 + NUM_CODEBOOKS)
USER = slice(1 + NUM_CODEBOOKS, NUM_ROWS)


def prompt_length(voice_frames: int, persona_tokens: int) -> int:
    """Give P: voice, silence, persona and silence. Without a persona the silences stay."""
    return voice_frames + 2 * SILENCE_FRAMES + persona_tokens


def prompt_frames(voice: torch.Tensor, persona_ids: Sequence[int]) -> torch.Tensor:
    """Lay out a system prompt before delays.

    Args:
        voice: ``[8, F]`` codes of the voice prompt.
        persona_ids: Ids of the tagged persona; empty for none.

    Returns:
        ``[17, P] int64`` on the device of ``voice``.
    """
    num_voice = voice.shape[1]
    frames = silent_frames(prompt_length(num_voice, len(persona_ids)), voice.device)
    frames[USER] = torch.tensor(SINE_CODES, device=voice.device).unsqueeze(1)
    frames[AGENT, :num_voice] = voice
    first = num_voice + SILENCE_FRAMES
    persona = torch.tensor(list(persona_ids), dtype=torch.int64, device=voice.device)
    frames[0, first : first + len(persona)] = persona
    return frames


def silent_frames(length: int, device: torch.device) -> torch.Tensor:
    """Give frames in which nobody speaks.

    Returns:
        ``[17, length] int64``.
    """
    frames = torch.full((NUM_ROWS, length), PAD_TOKEN, dtype=torch.int64, device=device)
    silence = torch.tensor(SILENCE_CODES, device=device).unsqueeze(1)
    frames[AGENT] = silence
    frames[USER] = silence
    return frames


def delay_frames(frames: torch.Tensor, text_card: int) -> torch.Tensor:
    """Turn frames into columns.

    Args:
        frames: ``[..., 17, n]`` from the prompt's first frame on.
        text_card: Text vocabulary; its size is the initial text token.

    Returns:
        ``[..., 17, n]`` of the same dtype; the delayed rows of the last frame are left out.
    """
    is_late = to_device(np.array(DELAYS) == 1, frames.device)
    columns = torch.where(is_late.unsqueeze(1), frames.roll(1, dims=-1), frames)
    columns[..., 0] = CARD
    columns[..., 0, 0] = text_card
    columns[..., 1] = columns[..., 1].masked_fill(is_late, CARD)
    return columns
