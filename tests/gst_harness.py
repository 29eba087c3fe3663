"""Pipelines around the element ``personaplex``, run by the system's GStreamer in a child."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.wire.address import EngineAddress

PROJECT = Path(__file__).resolve().parents[1]
TINY = PROJECT / "tests" / "data" / "tiny16"
SYSTEM_PYTHON = "/usr/bin/python3"
CHILD = PROJECT / "tests" / "gst_child.py"
MS = 1_000_000
FRAME_NS = 80 * MS
APT_LINE = (
    "apt-get install gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good "
    "gstreamer1.0-python3-plugin-loader python3-gst-1.0 gir1.2-gst-plugins-base-1.0 "
    "python3-aiohttp python3-numpy"
)
_PARTS = """
import sys, aiohttp, numpy, gi
gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp
Gst.init(None)
names = ["python", "app", "wavparse", "rtp", "rtpmanager", "udp", "mulaw", "alaw", "audioresample"]
missing = [name for name in names if Gst.Registry.get().find_plugin(name) is None]
sys.exit(f"no plugins {missing}" if missing else 0)
"""


@dataclass(frozen=True)
class Report:
    """What a pipeline did; see `gst_child.py`."""

    content: dict[str, Any]

    @property
    def pcm(self) -> NDArray[np.int16]:
        """Everything the agent's pad pushed."""
        return np.frombuffer(b"".join(self.data("out")), dtype=np.int16)

    @property
    def answers(self) -> list[NDArray[np.int16]]:
        """Its buffers without the silence that stood in for late answers."""
        pieces = zip(self.content["out"], self.data("out"), strict=True)
        return [np.frombuffer(data, dtype=np.int16) for (*_, is_gap), data in pieces if not is_gap]

    @property
    def times_ns(self) -> list[int]:
        """Running time of every buffer of the agent's pad."""
        return [pts for pts, _, _, _ in self.content["out"]]

    @property
    def words(self) -> list[tuple[int, str]]:
        """(milliseconds, words) of every buffer of the pad of words."""
        pieces = zip(self.content["words"], self.data("words"), strict=True)
        return [(buffer[0] // MS, data.decode()) for buffer, data in pieces]

    @property
    def error(self) -> tuple[str, str, int, str]:
        """(element, domain, code, text) of the first error; AssertionError without any."""
        assert self.content["errors"], "no error message came"
        source, domain, code, text = self.content["errors"][0]
        return source, domain, code, text

    def data(self, name: str) -> list[bytes]:
        return [bytes.fromhex(piece) for piece in self.content[f"{name}_data"]]

    def __getitem__(self, name: str) -> Any:
        return self.content[name]


@dataclass(frozen=True)
class GStreamer:
    """The system's GStreamer, told where the element lies."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a person sets, in a shell without a virtual environment."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "GST_REGISTRY": str(self.folder / "registry.bin"),
            "GST_PLUGIN_PATH": str(PROJECT / "livekit_personaplex" / "gst"),
        }

    def keep(self, pcm: NDArray[np.int16]) -> str:
        """Put a caller's samples where the child finds them; gives the path."""
        path = self.folder / "user.pcm"
        path.write_bytes(pcm.tobytes())
        return str(path)

    def launch(
        self, pipeline: str, *, timeout_s: float = 60.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``gst-launch-1.0`` to its end."""
        return subprocess.run(
            ["sh", "-c", f"exec gst-launch-1.0 -m {pipeline}"],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**self.environment, **environment},
        )

    def run(self, script: dict[str, Any], **environment: str) -> Report:
        """Run a script of `gst_child.py`."""
        path = self.folder / "script.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        done = subprocess.run(
            [SYSTEM_PYTHON, str(CHILD), str(path)],
            capture_output=True,
            text=True,
            timeout=45,
            check=False,
            env={**self.environment, **environment},
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        return Report(json.loads(done.stdout))


def find_gstreamer(folder: Path) -> GStreamer:
    """Find the system's GStreamer with its Python parts; skips the test where they are missing."""
    gstreamer = GStreamer(folder)
    try:
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", _PARTS],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=gstreamer.environment,
        )
    except FileNotFoundError:
        pytest.skip(f"there is no {SYSTEM_PYTHON}, whose GStreamer these tests use")
    if done.returncode != 0:
        pytest.skip(
            f"GStreamer's Python parts are missing ({done.stderr.strip()[-200:]}): {APT_LINE}"
        )
    return gstreamer


def talk_properties(address: EngineAddress, **properties: Any) -> dict[str, Any]:
    """Properties of the element for a greedy conversation with the small checkpoint."""
    return {"engine": str(address), "voice": "TINY0", "greedy": True, "seed": 1, **properties}


def user_pcm(num_frames: int) -> NDArray[np.int16]:
    """The first frames of the small checkpoint's caller."""
    pcm, rate_hz = soundfile.read(TINY / "user.wav", dtype="int16")
    assert rate_hz == SAMPLE_RATE_HZ
    return np.asarray(pcm[: num_frames * FRAME_SAMPLES])
