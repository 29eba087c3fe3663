"""Writes what came of a recording: whole files or none.

The description of a job is written last, so that a job whose description is there is done.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from safetensors.numpy import save_file

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.engine.offline import OfflineConversation
from livekit_personaplex.sampling import Sampling

AGENT_LEFT = "agent-left"
AGENT_RIGHT = "agent-right"
LAYOUTS = ("mono", AGENT_LEFT, AGENT_RIGHT)
"""Of the audio: the agent alone, or both speakers, sample by sample as they were in the call."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then give it that name; on errors nothing stays.

    Folders that are missing are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_audio(
    path: Path, agent: NDArray[np.int16], caller: NDArray[np.int16], *, layout: str
) -> None:
    """Write a WAV file, 24 kHz, 16 bit.

    Args:
        path: Where.
        agent: ``[n]``.
        caller: ``[n]``; not used in mono.
        layout: One of `LAYOUTS`.
    """
    samples = agent
    if layout != "mono":
        speakers = (agent, caller) if layout == AGENT_LEFT else (caller, agent)
        samples = np.stack(speakers, axis=1)
    write_whole(
        path,
        lambda part: soundfile.write(part, samples, SAMPLE_RATE_HZ, subtype="PCM_16", format="WAV"),
    )


def write_text(path: Path, content: str) -> None:
    """Write UTF-8."""
    write_whole(path, lambda part: part.write_text(content, encoding="utf-8"))


def write_codes(path: Path, tokens: NDArray[np.int64], metadata: dict[str, str]) -> None:
    """Write ``tokens [9, N] int64`` as a safetensors file."""
    write_whole(path, lambda part: save_file({"tokens": tokens}, part, metadata=metadata))


def describe(
    said: OfflineConversation, *, voice: str, persona: str, sampling: Sampling
) -> dict[str, object]:
    """Give the agent's words with their times, and how they came about."""
    pieces = [{"start_ms": start_ms, "text": text} for start_ms, text in said.timed_texts()]
    return {
        "text": said.text,
        "pieces": pieces,
        "voice": voice,
        "persona": persona,
        "greedy": sampling.greedy,
        "seed": sampling.seed,
    }


def write_description(path: Path, description: dict[str, object]) -> None:
    """Write it as JSON."""
    write_text(path, json.dumps(description, ensure_ascii=False, indent=1) + "\n")
