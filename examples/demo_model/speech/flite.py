"""Flite's voices: a whole text to speech that no training hears, to measure with.

Needs the command ``flite`` with its voices, as distributions package it, or as much of it in a
folder named by ``DEMO_FLITE`` (``bin/flite`` and ``lib/``).
"""

import os
import shutil
import subprocess
import tempfile
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from examples.demo_model.speech.utterance import LABEL, Utterance, level, trim
from examples.demo_model.talk.domain import Token
from livekit_personaplex.audio import SAMPLE_RATE_HZ

VOICES = ("slt", "rms", "awb", "kal16")
_LIMIT_S = 30


def command() -> tuple[list[str], dict[str, str]] | None:
    """Give the command and its environment; None where flite is not installed."""
    folder = os.environ.get("DEMO_FLITE")
    if folder:
        program = Path(folder) / "bin/flite"
        return [str(program)], {**os.environ, "LD_LIBRARY_PATH": str(Path(folder) / "lib")}
    found = shutil.which("flite")
    return ([found], dict(os.environ)) if found else None


class Flite:
    """Speaks through the command, one process an utterance."""

    def __init__(self) -> None:
        found = command()
        if found is None:
            raise FileNotFoundError("flite is not installed: install it, or set DEMO_FLITE")
        self.command, self.environment = found

    def say(
        self, tokens: Sequence[Token], settings: Mapping[str, float | str], r: np.random.Generator
    ) -> Utterance:
        """Speak in the voice ``settings["voice"]``; the times of words are not known."""
        del r  # this engine has no noise of its own
        text = " ".join(word for token in tokens for word in token.spoken)
        voice = ["-voice", str(settings["voice"])]
        for feature in ("duration_stretch", "int_f0_target_mean"):
            voice += ["--setf", f"{feature}={settings[feature]}"]
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(
                [*self.command, *voice, "-t", text, "-o", file.name],
                check=True,
                env=self.environment,
                timeout=_LIMIT_S,
            )
            with wave.open(file.name) as sound:
                rate = sound.getframerate()
                raw = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
        scaled = raw.astype(np.float32) / 32768
        audio, _ = trim(
            resample_poly(scaled, SAMPLE_RATE_HZ // 1000, rate // 1000).astype(np.float32)
        )
        return Utterance(level(audio), None, np.full(-(-len(audio) // LABEL), -1, dtype=np.int16))
