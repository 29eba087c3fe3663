"""The conformance data: small checkpoints and what the reference gives on them (data/README.md)."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from livekit_personaplex.audio import split_frames
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.sizing import EngineSizes
from livekit_personaplex.model.personaplex import PersonaPlex, load_personaplex
from livekit_personaplex.sampling import Sampling

DATA = Path(__file__).parent / "data"
CHECKPOINTS = ("tiny8", "tiny16")
GREEDY = Sampling(greedy=True, seed=0)


@dataclass(frozen=True)
class Case:
    """One golden conversation: how it was opened."""

    name: str
    voice: str
    has_persona: bool


CASES = (
    Case("pt_persona", "TINY0", True),
    Case("wav_persona", "TINY0.wav", True),
    Case("pt_nopersona", "TINY0", False),
)


@functools.cache
def load_model(checkpoint: str, device: str = "cpu") -> PersonaPlex:
    return load_personaplex(
        str(DATA / checkpoint / "checkpoint"), device=torch.device(device), dtype=torch.float32
    )


@functools.cache
def golden(checkpoint: str) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = load_file(DATA / checkpoint / "golden.safetensors")
    return tensors


@functools.cache
def user_frames(checkpoint: str) -> tuple[NDArray[np.int16], ...]:
    samples, rate = soundfile.read(DATA / checkpoint / "user.wav", dtype="int16")
    assert rate == 24_000
    return tuple(split_frames(samples))


def persona(checkpoint: str, case: Case) -> str:
    text: str = json.loads((DATA / checkpoint / "golden.json").read_text())["persona"]
    return text if case.has_persona else ""


def make_core(
    checkpoint: str,
    *,
    num_slots: int = 1,
    group_slots: int = 1,
    prompt_rows: int = 16,
    kv_dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> EngineCore:
    sizes = EngineSizes(num_slots, group_slots, prompt_rows, kv_dtype, slot_bytes=0)
    return EngineCore(load_model(checkpoint, device), sizes)
