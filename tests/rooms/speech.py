"""The recorded questions."""

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parents[1] / "data" / "speech"


def read_question(name: str) -> NDArray[np.int16]:
    """Read ``late_fee`` (2.0 s) or ``opening_hours`` (2.8 s)."""
    samples, _ = soundfile.read(FOLDER / f"{name}.wav", dtype="int16")
    return np.asarray(samples, dtype=np.int16)
