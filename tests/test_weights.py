"""Reading checkpoints: one tensor at a time, own memory, and errors that name what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.model.weights import CheckpointReader, stored_dep_q

DATA = Path(__file__).parent / "data"
CPU = torch.device("cpu")


def save(path: Path, **tensors: torch.Tensor) -> Path:
    save_file(tensors, path)
    return path


def test_tensor_is_read_as_the_asked_dtype(tmp_path: Path) -> None:
    values = torch.randn(3, 5).to(torch.bfloat16)
    with CheckpointReader(save(tmp_path / "w.safetensors", a=values)) as reader:
        assert reader.names == {"a"}
        assert reader.shape("a") == (3, 5)
        read = reader.read("a", CPU, torch.float32)
        assert read.dtype == torch.float32
        assert torch.equal(read, values.float())
        assert torch.equal(reader.read("a", CPU, torch.bfloat16), values)


def test_tensor_outlives_reader_and_file(tmp_path: Path) -> None:
    values = torch.randn(1000)
    path = save(tmp_path / "w.safetensors", a=values)
    with CheckpointReader(path) as reader:
        read = reader.read("a", CPU, torch.float32)
    with path.open("r+b") as file:
        file.truncate(0)
    assert torch.equal(read, values)


def test_loading_holds_no_second_copy(tmp_path: Path) -> None:
    tensors = {f"t{index}": torch.full((256, 4096), float(index)) for index in range(24)}
    save_file(tensors, tmp_path / "w.safetensors")
    script = """
import sys, torch
from livekit_personaplex.model.weights import CheckpointReader
def private_kib(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
with CheckpointReader(sys.argv[1]) as reader:
    reader.read("t0", torch.device("cpu"), torch.float32)
    before = private_kib("RssAnon")
    peak, kept = 0, []
    for name in sorted(reader.names):
        kept.append(reader.read(name, torch.device("cpu"), torch.bfloat16))
        peak = max(peak, private_kib("RssAnon") - before)
print(peak)
"""
    run = [sys.executable, "-c", script, str(tmp_path / "w.safetensors")]
    peak_kib = int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    final_kib = 24 * 256 * 4096 * 2 // 1024
    one_tensor_kib = 256 * 4096 * 4 // 1024
    assert final_kib * 0.9 < peak_kib < final_kib + 2 * one_tensor_kib


def test_check_accepts_exactly_the_expected_tensors(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", a=torch.zeros(2), b=torch.zeros(3, 1))
    with CheckpointReader(path) as reader:
        reader.check({"a": (2,), "b": (3, 1)})
        reader.check({"a": (2,)}, {"b": (3, 1), "c": (9,)})


def test_check_names_everything_that_is_wrong_in_one_message(tmp_path: Path) -> None:
    path = save(
        tmp_path / "w.safetensors", a=torch.zeros(2), wrong=torch.zeros(3, 4), extra=torch.zeros(1)
    )
    with CheckpointReader(path) as reader, pytest.raises(CheckpointError) as caught:
        reader.check({"a": (2,), "wrong": (3, 5), "gone": (1,)})
    message = str(caught.value)
    assert "1 missing: gone" in message
    assert "1 unexpected: extra" in message
    assert "wrong is [3, 4] in the file and [3, 5] by config" in message
    assert "config.json" in message


def test_check_refuses_a_misshaped_optional_tensor(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", a=torch.zeros(2), b=torch.zeros(3))
    with CheckpointReader(path) as reader, pytest.raises(CheckpointError, match="misshaped: b"):
        reader.check({"a": (2,)}, {"b": (4,)})


def test_long_lists_are_cut_in_order_and_counted(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", a=torch.zeros(2))
    expected = {f"layers.{index}.weight": (1,) for index in range(20)}
    with CheckpointReader(path) as reader, pytest.raises(CheckpointError) as caught:
        reader.check({"a": (2,), **expected})
    message = str(caught.value)
    assert "20 missing: layers.0.weight, layers.1.weight, layers.2.weight" in message
    assert "layers.7.weight and 12 more" in message
    assert "layers.10.weight" not in message


@pytest.mark.parametrize("keep_bytes", [0, 4, 20, 5000])
def test_cut_file_is_a_checkpoint_error(keep_bytes: int, tmp_path: Path) -> None:
    whole = (DATA / "tiny8" / "checkpoint" / "model.safetensors").read_bytes()
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole[:keep_bytes])
    with pytest.raises(CheckpointError, match="download it again"):
        CheckpointReader(path)


def test_other_files_are_checkpoint_errors(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n" * 3)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        CheckpointReader(tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="found none"):
        CheckpointReader(tmp_path / "missing.safetensors")
    with pytest.raises(CheckpointError, match="found none"):
        CheckpointReader(tmp_path)


def test_quantised_and_absent_tensors_are_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", q=torch.zeros(4, dtype=torch.int8))
    with CheckpointReader(path) as reader:
        with pytest.raises(CheckpointError, match="q is stored as I8"):
            reader.read("q", CPU, torch.float32)
        with pytest.raises(CheckpointError, match="no tensor r"):
            reader.read("r", CPU, torch.float32)


@pytest.mark.parametrize(("checkpoint", "stored"), [("tiny8", 8), ("tiny16", 16)])
def test_stored_sets_are_counted_in_the_file(checkpoint: str, stored: int) -> None:
    with CheckpointReader(DATA / checkpoint / "checkpoint" / "model.safetensors") as reader:
        assert stored_dep_q(reader.names) == stored


def test_another_number_of_stored_sets_is_refused() -> None:
    names = frozenset(f"depformer_in.{index}.weight" for index in range(12))
    with pytest.raises(CheckpointError, match="found 12"):
        stored_dep_q(names)
