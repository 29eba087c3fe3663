"""Recordings for offline replay: what the core was given for one session, and what it gave.

One safetensors file per session, ``SESSION.safetensors``, readable by its owner only:

* ``frames [max(N-1, 0), 1920] int16``: user frames in the order they were heard; step n heard
  frames 0 to n-1. Frames that were dropped or never heard are not there.
* ``tokens [9, N] int64``: text token, then the agent's 8 codes, of every step.
* ``pcm [N, 1920] int16``: the agent's frames.
* metadata: ``voice``, ``persona``, ``sampling`` (JSON, with the seed), ``package_version``, and
  ``steering``: JSON list of [step, "say" | "stop_saying" | "hold" | "release", text]: what was
  asked of the conversation before which step, the greeting included.
"""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_TOKEN_ROWS
from livekit_personaplex.engine.scheduler import SessionStep
from livekit_personaplex.engine.steering import Command, Hold, Say, StopSaying
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.version import __version__
from livekit_personaplex.wire.protocol import OpenRequest


def check_folder(folder: Path) -> None:
    """Make the folder for recordings when it is not there.

    Raises:
        ConfigError: It cannot be made, or not be written to.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"recordings cannot be written to {folder} ({error.strerror}); choose another folder, "
            "or unset PERSONAPLEX_RECORD"
        ) from None


class Recording:
    """One session's recording, kept in memory (96 KB per second) until `write`."""

    def __init__(self) -> None:
        """Make an empty recording."""
        self._frames: list[NDArray[np.int16]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._pcm: list[NDArray[np.int16]] = []
        self._steering: list[tuple[int, str, str]] = []

    def add(self, step: SessionStep) -> None:
        """Keep what one step heard and said."""
        if step.heard is not None:
            self._frames.append(np.frombuffer(step.heard.pcm, dtype="<i2").astype(np.int16))
        self._tokens.append(step.step.tokens)
        self._pcm.append(step.step.pcm)

    def note(self, command: Command, *, step: int) -> None:
        """Keep what was asked of the conversation before a step."""
        match command:
            case Say():
                self._steering.append((step, "say", command.text))
            case StopSaying():
                self._steering.append((step, "stop_saying", ""))
            case Hold():
                self._steering.append((step, "hold", ""))
            case _:
                self._steering.append((step, "release", ""))

    def write(
        self, folder: Path, session_id: str, request: OpenRequest, sampling: Sampling
    ) -> None:
        """Write the file, whole or not at all. Blocks on the disk.

        Args:
            folder: Where; made when it is not there.
            session_id: Name of the file.
            request: Gives voice and persona.
            sampling: The session's own, with its seed.

        Raises:
            OSError: It cannot be written.
        """
        tensors = {
            "frames": np.array(self._frames, dtype=np.int16).reshape(-1, FRAME_SAMPLES),
            "tokens": np.ascontiguousarray(
                np.array(self._tokens, dtype=np.int64).reshape(-1, NUM_TOKEN_ROWS).T
            ),
            "pcm": np.array(self._pcm, dtype=np.int16).reshape(-1, FRAME_SAMPLES),
        }
        metadata = {
            "voice": request.voice,
            "persona": request.persona,
            "sampling": json.dumps(asdict(sampling)),
            "package_version": __version__,
            "steering": json.dumps(self._steering),
        }
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f".{session_id}.part"
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(save(tensors, metadata=metadata))
        part.rename(folder / f"{session_id}.safetensors")
