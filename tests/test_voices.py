"""Voices: untrusted archives and files, recordings of every usual kind, and looking up a name."""

import io
import os
import pickle
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from livekit_personaplex.errors import CheckpointError, ConfigError
from livekit_personaplex.model import voice_archive
from livekit_personaplex.model.audio_file import read_recording, set_loudness
from livekit_personaplex.model.config import load_config
from livekit_personaplex.model.voice_archive import read_archive
from livekit_personaplex.model.voice_files import read_saved_voice, read_spoken_voice
from livekit_personaplex.model.voice_library import load_voices

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "tiny8" / "checkpoint"
CONFIG = load_config(FOLDER)
WIDTH = CONFIG.temporal_config.hidden_size


class FakeEncoder:
    """Remembers what it was given, and gives every frame its number as all eight codes."""

    def __init__(self) -> None:
        self.recordings: list[NDArray[np.float32]] = []

    def __call__(self, frames: NDArray[np.float32]) -> NDArray[np.int64]:
        self.recordings.append(frames)
        return np.tile(np.arange(len(frames)), (8, 1))


def speech(seconds: float, rate_hz: int = 24000, channels: int = 1) -> NDArray[np.float64]:
    """Something with a loudness: a hum that swells, ``[samples, channels]``."""
    time = np.arange(int(seconds * rate_hz)) / rate_hz
    hum = 0.2 * np.sin(2 * np.pi * 220 * time) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
    return np.tile(hum[:, None], (1, channels))


def wav_bytes(
    samples: NDArray[np.float64], rate_hz: int = 24000, subtype: str = "PCM_16", kind: str = "WAV"
) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, subtype=subtype, format=kind)
    return buffer.getvalue()


def pt_bytes(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def saved_voice(embeddings: torch.Tensor | None = None, cache: torch.Tensor | None = None) -> bytes:
    if embeddings is None:
        embeddings = torch.ones(5, 1, 1, WIDTH)
    if cache is None:
        cache = torch.ones(1, 17, 4, dtype=torch.int64)
    return pt_bytes({"embeddings": embeddings, "cache": cache})


def write_archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


# Looking up


def test_saved_voice_equals_the_reference() -> None:
    golden = load_file(DATA / "tiny8" / "golden.safetensors")
    encoder = FakeEncoder()
    voice = load_voices(CONFIG, FOLDER / "voices.tgz", None, encoder).get("TINY0")
    assert voice.codes is None
    assert voice.embeddings is not None and voice.cache is not None
    assert voice.embeddings.dtype == np.float32 and voice.cache.dtype == np.int64
    assert np.array_equal(voice.embeddings, golden["voice.embeddings"][:, 0, 0])
    assert np.array_equal(voice.cache, golden["voice.cache"][0])
    assert encoder.recordings == []


def test_both_forms_of_a_voice_can_be_asked_for() -> None:
    encoder = FakeEncoder()
    library = load_voices(CONFIG, FOLDER / "voices.tgz", None, encoder)
    assert library.names == ("TINY0", "TINY0.wav")
    assert library.get("TINY0.pt") is library.get("TINY0")
    spoken = library.get("TINY0.wav")
    assert spoken.name == "TINY0.wav"
    assert spoken.codes is not None and spoken.codes.shape == (8, 14)
    assert library.get("TINY0.wav") is spoken
    assert len(encoder.recordings) == 1


def test_unknown_voice_is_refused_with_all_names() -> None:
    library = load_voices(CONFIG, FOLDER / "voices.tgz", None, FakeEncoder())
    for name in ("NATF9", "", "../TINY0", "voices/TINY0.pt", "/etc/passwd"):
        with pytest.raises(ConfigError, match=r"this engine has: TINY0, TINY0\.wav"):
            library.get(name)


def test_own_voices_are_added_and_win(tmp_path: Path) -> None:
    (tmp_path / "ours.wav").write_bytes(wav_bytes(speech(1.0)))
    (tmp_path / "TINY0.wav").write_bytes(wav_bytes(speech(2.0)))
    (tmp_path / "notes.txt").write_text("no voice")
    (tmp_path / "._ours.wav").write_bytes(b"not audio")
    encoder = FakeEncoder()
    library = load_voices(CONFIG, FOLDER / "voices.tgz", tmp_path, encoder)
    assert library.names == ("TINY0", "ours")
    ours, replaced = library.get("ours"), library.get("TINY0")
    assert ours.codes is not None and ours.codes.shape == (8, 13)
    assert replaced.codes is not None and replaced.codes.shape == (8, 25)
    assert library.get("TINY0.wav") is replaced
    assert len(encoder.recordings) == 2


def test_own_voices_are_enough(tmp_path: Path) -> None:
    (tmp_path / "ours.pt").write_bytes(saved_voice())
    library = load_voices(CONFIG, tmp_path / "voices.tgz", tmp_path, FakeEncoder())
    assert library.names == ("ours",)
    with pytest.raises(CheckpointError, match="found none"):
        load_voices(CONFIG, tmp_path / "voices.tgz", None, FakeEncoder())
    with pytest.raises(ConfigError, match="elsewhere"):
        load_voices(CONFIG, FOLDER / "voices.tgz", tmp_path / "elsewhere", FakeEncoder())


def test_voice_that_does_not_fit_is_the_checkpoints_fault_or_the_operators(tmp_path: Path) -> None:
    misfit = saved_voice(torch.ones(5, 1, 1, WIDTH + 1))
    archive = write_archive(tmp_path / "voices.tgz", {"voices/A.pt": misfit})
    with pytest.raises(CheckpointError, match="voice A"):
        load_voices(CONFIG, archive, None, FakeEncoder())
    own = tmp_path / "own"
    own.mkdir()
    (own / "B.pt").write_bytes(misfit)
    with pytest.raises(ConfigError, match="voice B"):
        load_voices(CONFIG, FOLDER / "voices.tgz", own, FakeEncoder())


def test_saved_voices_need_no_audio_libraries() -> None:
    script = """
import sys
for name in ("soundfile", "soxr", "pyloudnorm", "scipy"):
    sys.modules[name] = None
from pathlib import Path
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.config import load_config
from livekit_personaplex.model.voice_library import load_voices
folder = Path(sys.argv[1])
library = load_voices(load_config(folder), folder / "voices.tgz", None, lambda frames: None)
assert library.get("TINY0").embeddings is not None
try:
    library.get("TINY0.wav")
except ConfigError as error:
    assert "not installed" in str(error), error
else:
    raise AssertionError("a recording was read without libraries")
"""
    subprocess.run([sys.executable, "-c", script, str(FOLDER)], check=True)


# Archives


def test_plain_files_of_an_archive_are_read(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "v.tgz", {"voices/A.pt": b"one", "B.wav": b"two", "./C": b""})
    assert list(read_archive(path)) == [("A.pt", b"one"), ("B.wav", b"two"), ("C", b"")]


@pytest.mark.parametrize(
    "name",
    ["../evil.pt", "voices/../../evil.pt", "/etc/evil.pt", "voices\\..\\evil.pt", ".."],
)
def test_member_that_points_outside_refuses_the_archive(name: str, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "v.tgz", {"voices/A.pt": b"one", name: b"evil"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match="points outside"):
        list(read_archive(path))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_refuse_the_archive(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "v.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("voices/A.pt")
        info.type = kind
        info.linkname = "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(CheckpointError, match="no plain file"):
        list(read_archive(tmp_path / "v.tgz"))


def test_oversized_member_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_archive, "MAX_MEMBER_BYTES", 1000)
    path = write_archive(tmp_path / "v.tgz", {"A.pt": bytes(1001)})
    with pytest.raises(CheckpointError, match="1001 bytes"):
        list(read_archive(path))


def test_bomb_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_archive, "MAX_ARCHIVE_BYTES", 300_000)
    members = {f"{index}.pt": bytes(100_000) for index in range(5)}
    read: list[str] = []
    with pytest.raises(CheckpointError, match="unpacks to more"):
        read.extend(name for name, _ in read_archive(write_archive(tmp_path / "v.tgz", members)))
    many = write_archive(tmp_path / "many.tgz", {f"{index}": b"" for index in range(30)})
    monkeypatch.setattr(voice_archive, "MAX_MEMBERS", 20)
    with pytest.raises(CheckpointError, match="more than 20 members"):
        list(read_archive(many))


def test_header_bomb_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "v.tgz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("A.pt")
        info.pax_headers = {"comment": "x" * 2_000_000}
        archive.addfile(info)
    monkeypatch.setattr(voice_archive, "MAX_ARCHIVE_BYTES", 1_000_000)
    with pytest.raises(CheckpointError, match="unpacks to more"):
        list(read_archive(tmp_path / "v.tgz"))


def test_broken_archives_are_checkpoint_errors(tmp_path: Path) -> None:
    whole = (FOLDER / "voices.tgz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (b"", b"no archive", whole[:100], whole[:-2000], whole[:-4], bytes(damaged)):
        path = tmp_path / "v.tgz"
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"v\.tgz"):
            list(read_archive(path))


# Saved voices


class RunsCode:
    """What a hostile pickle does to a careless reader."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def test_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path) -> None:
    evil = RunsCode(tmp_path / "was_here")
    for content in (
        pt_bytes({"embeddings": torch.ones(5, 1, 1, WIDTH), "cache": evil}),
        pickle.dumps(evil),
        pickle.dumps({"embeddings": evil}, protocol=4),
    ):
        with pytest.raises(ConfigError, match="only plain tensors are loaded"):
            read_saved_voice("evil", content, CONFIG)
    assert not evil.trace.exists()
    pickle.loads(pickle.dumps(evil))
    assert evil.trace.exists(), "the pickle is not hostile, so this test shows nothing"


@pytest.mark.parametrize(
    "content", [b"", b"garbage", saved_voice()[:500], b"PK\x03\x04" + b"x" * 99]
)
def test_broken_saved_voice_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="voice broken"):
        read_saved_voice("broken", content, CONFIG)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1, 2], "got list"),
        ({"embeddings": torch.ones(5, 1, 1, WIDTH)}, "'cache'"),
        ({"cache": torch.ones(1, 17, 4)}, "'embeddings'"),
        ({"embeddings": "x", "cache": "y"}, "got str"),
    ],
)
def test_saved_voice_of_another_structure_is_refused(value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_saved_voice("odd", pt_bytes(value), CONFIG)


@pytest.mark.parametrize(
    "content",
    [
        saved_voice(torch.ones(5, WIDTH)),
        saved_voice(torch.ones(0, 1, 1, WIDTH)),
        saved_voice(torch.ones(())),
        saved_voice(torch.ones(1001, 1, 1, WIDTH)),
        saved_voice(torch.full((5, 1, 1, WIDTH), float("nan"))),
        saved_voice(torch.ones(5, 1, 1, WIDTH).to_sparse()),
        saved_voice(cache=torch.ones(1, 17, 5, dtype=torch.int64)),
        saved_voice(cache=torch.ones(17, 4, dtype=torch.int64)),
        saved_voice(cache=torch.ones(1, 17, 4)),
        saved_voice(cache=torch.full((1, 17, 4), 2049)),
        saved_voice(cache=torch.full((1, 17, 4), 1000)),
        saved_voice(cache=torch.full((1, 17, 4), -3)),
    ],
)
def test_saved_voice_of_other_shapes_or_values_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="voice odd"):
        read_saved_voice("odd", content, CONFIG)


def test_saved_voice_in_another_dtype_is_widened() -> None:
    voice = read_saved_voice("A", saved_voice(torch.ones(5, 1, 1, WIDTH).bfloat16()), CONFIG)
    assert voice.embeddings is not None
    assert voice.embeddings.dtype == np.float32 and voice.embeddings.shape == (5, WIDTH)


# Recordings


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 44100, 48000, 96000])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_recording_of_any_kind_is_the_same_24_khz_mono(
    rate_hz: int, subtype: str, channels: int
) -> None:
    content = wav_bytes(speech(0.5, rate_hz, channels), rate_hz, subtype)
    samples = read_recording(io.BytesIO(content), name="clip", max_s=30.0)
    assert samples.dtype == np.float32
    assert abs(len(samples) - 12000) <= 1
    inner = slice(1200, 10800)
    np.testing.assert_allclose(samples[inner], speech(0.5)[inner, 0], atol=2e-3)


def test_stereo_is_averaged(tmp_path: Path) -> None:
    samples = speech(0.5, channels=2)
    samples[:, 1] *= -0.5
    (tmp_path / "s.wav").write_bytes(wav_bytes(samples, subtype="FLOAT"))
    mono = read_recording(tmp_path / "s.wav", name="clip", max_s=30.0)
    np.testing.assert_allclose(mono, samples[:, 0] * 0.25, atol=1e-6)


@pytest.mark.parametrize("gain", [0.01, 1.0, 4.0])
def test_loudness_is_set_and_peaks_are_not_cut(gain: float) -> None:
    import pyloudnorm

    samples = (speech(2.0)[:, 0] * gain).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        louder = set_loudness(samples, -24.0, name="clip")
        loud = set_loudness(samples, 0.0, name="clip")
    assert louder.dtype == np.float32
    assert abs(pyloudnorm.Meter(24000).integrated_loudness(louder) + 24.0) < 0.01
    assert np.abs(loud).max() > 1.0


def test_voice_from_a_recording_is_cut_into_frames_and_padded() -> None:
    encoder = FakeEncoder()
    content = wav_bytes(speech(1.0, 44100, 2), 44100, "PCM_24")
    voice = read_spoken_voice("ours", content, encoder)
    (frames,) = encoder.recordings
    assert frames.dtype == np.float32 and frames.shape == (13, 1920)
    assert voice.codes is not None and voice.codes.shape == (8, 13)
    assert not frames[12, 960:].any()
    assert frames[12, :950].any()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read as audio"),
        (b"RIFF" + b"x" * 100, "cannot be read as audio"),
        (wav_bytes(speech(0.0)), "no audio"),
        (wav_bytes(speech(0.3)), "0.30 s long"),
        (wav_bytes(speech(30.1, 8000), 8000), "30.1 s long, at most 30 s"),
        (wav_bytes(np.zeros((48000, 1))), "silent"),
        (wav_bytes(speech(1.0, channels=3)), "3 channels"),
        (wav_bytes(speech(1.0, 4000), 4000), "4000 samples a second"),
        (wav_bytes(np.full((24000, 1), np.nan), subtype="FLOAT"), "no finite numbers"),
    ],
)
def test_recording_that_is_no_voice_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read_spoken_voice("bad", content, FakeEncoder())
    assert "voice bad" in str(caught.value)


def test_recording_of_exactly_thirty_seconds_is_taken() -> None:
    voice = read_spoken_voice("long", wav_bytes(speech(30.0, 8000), 8000), FakeEncoder())
    assert voice.codes is not None and voice.codes.shape == (8, 375)
