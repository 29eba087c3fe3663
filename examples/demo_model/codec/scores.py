"""How good a codec is on utterances it was not trained on, without a recogniser."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from examples.demo_model.bank.bank import Bank
from examples.demo_model.codec.step import CodecStep
from examples.demo_model.speech.voices import CALLER
from livekit_personaplex.audio import FRAME_SAMPLES

_CLIPS, _CLIP_FRAMES = 16, 40


class HeldClips(NamedTuple):
    """Clips of one voice, or of callers kept out of the training: audio and phonemes."""

    name: str
    audio: Tensor
    labels: Tensor


def held_clips(
    bank: Bank, held: dict[str, list[int]], device: torch.device, frames: int = _CLIP_FRAMES
) -> list[HeldClips]:
    """Read some held-out utterances of each agent, and of callers kept out, from disk."""
    chosen = dict(held)
    others = bank.speakers_of(CALLER, held=True)
    if others:
        chosen["callers"] = np.flatnonzero(np.isin(bank.speaker, others)).tolist()
    return [
        HeldClips(name, *_read(bank, spread(utterances, _CLIPS), frames, device))
        for name, utterances in chosen.items()
        if utterances
    ]


def spread(items: list[int], count: int) -> list[int]:
    """Take ``count`` items at even distances, or all."""
    places = np.linspace(0, len(items) - 1, min(count, len(items)))
    return [items[int(place)] for place in places]


@torch.no_grad()
def evaluate(step: CodecStep, clips: list[HeldClips]) -> dict[str, object]:
    """Measure distances, phonemes read and codebook entries used, through the exported codec."""
    mimi = step.exported()
    scores: dict[str, object] = {}
    for clip in clips:
        codes = mimi.encode(clip.audio.unsqueeze(1))
        latent = mimi.latent(clip.audio)
        seen = mimi.quantizer(latent)
        apart = step.distance(clip.audio, mimi.decode(codes).squeeze(1))
        scores[clip.name] = {
            "mel": round(apart.mel.mean().item(), 3),
            "wave": round(apart.wave.mean().item(), 4),
            "phonemes_first": _read_off(step, "phonemes_first", seen.first, clip.labels),
            "phonemes_all": _read_off(step, "phonemes_all", seen.total, clip.labels),
            "entries": [len(row.unique()) for row in codes.transpose(0, 1)],
        }
    return scores


def _read_off(step: CodecStep, head: str, vectors: Tensor, labels: Tensor) -> float:
    return round(float(step.heads[head](vectors, labels).accuracy), 3)


def _read(
    bank: Bank, utterances: list[int], frames: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    audio = np.zeros((len(utterances), frames * FRAME_SAMPLES), dtype=np.float32)
    labels = np.zeros((len(utterances), frames * 4), dtype=np.int64)
    for row, utterance in enumerate(utterances):
        samples = bank.audio_of(utterance)[: audio.shape[1]]
        phonemes = bank.labels_of(utterance)[: labels.shape[1]]
        audio[row, : len(samples)] = samples / 32768
        labels[row, : len(phonemes)] = phonemes
    return torch.from_numpy(audio).to(device), torch.from_numpy(labels).to(device)
