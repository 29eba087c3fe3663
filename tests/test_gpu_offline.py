"""Batches of recordings on a GPU: the tokens of one by one, and codes that are decoded later."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.numpy import load_file

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.cli.main import main
from tests.conformance import DATA

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = (25_000, 9_000, 14_001, 20_000, 1)
TINY = DATA / "tiny16"


def offline(*options: object) -> int:
    where = ["--device", "cuda", "--dtype", "float32", "--model", TINY / "checkpoint"]
    return main(["offline", *map(str, [*where, *options])])


def test_a_batch_says_what_each_says_alone_and_its_codes_can_wait(tmp_path: Path) -> None:
    pcm, _ = soundfile.read(TINY / "user.wav", dtype="int16")
    (tmp_path / "in").mkdir()
    for index, num_samples in enumerate(LENGTHS):
        samples = pcm[index * 7_000 :][:num_samples]
        soundfile.write(tmp_path / f"in/{index}.wav", samples, SAMPLE_RATE_HZ)
    talk = ["--voice", "TINY0", "--seed", 4]
    many = [*talk, "--inputs", tmp_path / "in", "--slots", 3]
    assert offline(*many, "--output-dir", tmp_path / "both", "--with-codes") == 0
    assert offline(*many, "--output-dir", tmp_path / "codes", "--stage", "talker") == 0
    decode = ["--stage", "code2wav", "--inputs", tmp_path / "codes", "--slots", 3]
    assert offline(*decode, "--output-dir", tmp_path / "later") == 0
    for index in range(len(LENGTHS)):
        alone = tmp_path / f"{index}.safetensors"
        assert offline(*talk, "--input", tmp_path / f"in/{index}.wav", "--tokens", alone) == 0
        tokens = load_file(alone)["tokens"]
        for folder in ("both", "codes"):
            written = load_file(tmp_path / folder / f"{index}.safetensors")["tokens"]
            assert np.array_equal(written, tokens), (folder, index)
        at_once, _ = soundfile.read(tmp_path / f"both/{index}.wav", dtype="int16")
        later, _ = soundfile.read(tmp_path / f"later/{index}.wav", dtype="int16")
        assert np.abs(at_once.astype(int) - later).max() <= 1
