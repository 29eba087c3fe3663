"""``livekit-personaplex offline --inputs``: many recordings on the small checkpoints."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from safetensors import safe_open
from safetensors.numpy import load_file

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.cli.main import main
from livekit_personaplex.offline import results, talk_stage

TINY = Path(__file__).parent / "data" / "tiny16"


def user_pcm(num_samples: int, first: int = 0) -> np.ndarray:
    pcm, _ = soundfile.read(TINY / "user.wav", dtype="int16")
    return np.asarray(pcm[first : first + num_samples])


def write_recordings(folder: Path, lengths: list[int]) -> None:
    """Recordings 0.wav, 1.wav, ... that differ in content and length."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, num_samples in enumerate(lengths):
        pcm = user_pcm(num_samples, first=index * 7_000)
        soundfile.write(folder / f"{index}.wav", pcm, SAMPLE_RATE_HZ)


def offline(*options: object) -> int:
    given = ["--model", TINY / "checkpoint", "--device", "cpu", *options]
    return main(["offline", *map(str, given)])


def report_of(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def statuses(folder: Path) -> dict[str, str]:
    return {name: entry["status"] for name, entry in report_of(folder).items()}


def test_many_at_once_say_what_each_says_alone(tmp_path: Path) -> None:
    lengths = [25_000, 9_000, 14_001, FRAME_SAMPLES, 20_000, 1]
    write_recordings(tmp_path / "in", lengths)
    lines = [
        {"input": f"in/{index}.wav", "seed": 40 + index, "persona": "You are." * (index % 3)}
        for index in range(len(lengths))
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "out"
    batch = ["--inputs", tmp_path / "list.jsonl", "--voice", "TINY0", "--slots", 3]
    assert offline(*batch, "--output-dir", out, "--with-codes") == 0
    for index, line in enumerate(lines):
        alone, written = tmp_path / "alone", out / f"in/{index}"
        one = ["--input", tmp_path / line["input"], "--voice", "TINY0", "--seed", line["seed"]]
        files = ["--output", f"{alone}.wav", "--tokens", f"{alone}.t", "--text", f"{alone}.json"]
        assert offline(*one, "--persona", line["persona"], *files) == 0
        tokens = load_file(f"{written}.safetensors")["tokens"]
        assert np.array_equal(tokens, load_file(f"{alone}.t")["tokens"])
        audio, _ = soundfile.read(f"{written}.wav", dtype="int16")
        audio_alone, _ = soundfile.read(f"{alone}.wav", dtype="int16")
        assert len(audio) == lengths[index]
        assert np.abs(audio.astype(int) - audio_alone).max() <= 1
        words = json.loads(Path(f"{written}.json").read_text(encoding="utf-8"))
        words_alone = json.loads(Path(f"{alone}.json").read_text(encoding="utf-8"))
        assert words["text"] == words_alone["text"]
        assert words["pieces"] == words_alone["pieces"]
        assert report_of(out)[f"in/{index}"]["audio_s"] == round(lengths[index] / SAMPLE_RATE_HZ, 3)


def test_a_folder_of_every_format_is_heard_alike(tmp_path: Path) -> None:
    folder, pcm = tmp_path / "in", user_pcm(24_000)
    folder.mkdir()
    soundfile.write(folder / "wav.wav", pcm, SAMPLE_RATE_HZ)
    soundfile.write(folder / "flac.flac", pcm, SAMPLE_RATE_HZ)
    soundfile.write(folder / "vorbis.ogg", pcm, SAMPLE_RATE_HZ, format="OGG", subtype="VORBIS")
    soundfile.write(folder / "opus.opus", pcm, SAMPLE_RATE_HZ, format="OGG", subtype="OPUS")
    soundfile.write(folder / "mp3.mp3", pcm, SAMPLE_RATE_HZ, format="MP3")
    soundfile.write(folder / "wide.wav", np.stack([pcm, pcm], 1), SAMPLE_RATE_HZ, subtype="PCM_24")
    options = ["--inputs", folder, "--output-dir", tmp_path, "--voice", "TINY0", "--slots", 6]
    assert offline(*options, "--greedy", "--seed", 1, "--layout", "agent-left") == 0
    assert set(statuses(tmp_path).values()) == {"done"} and len(statuses(tmp_path)) == 6
    callers = {}
    for name in ("wav", "flac", "vorbis", "opus", "mp3", "wide"):
        samples, _ = soundfile.read(tmp_path / f"{name}.wav", dtype="int16")
        assert abs(len(samples) - 24_000) < 2_400, "lossy ones may have a margin"
        callers[name] = samples[:24_000, 1].astype(np.float64)
    assert np.array_equal(callers["wav"], callers["flac"])
    assert np.array_equal(callers["wav"], callers["wide"])
    for name in ("vorbis", "opus", "mp3"):
        size = min(len(callers["wav"]), len(callers[name]))
        likeness = np.corrcoef(callers["wav"][:size], callers[name][:size])[0, 1]
        assert likeness > 0.9, (name, likeness)


def test_codes_now_and_audio_later_give_what_both_at_once_give(tmp_path: Path) -> None:
    write_recordings(tmp_path / "in", [12_345, 30_000, 5_000])
    shared = ["--voice", "TINY0", "--seed", 3, "--slots", 2]
    talk = [*shared, "--inputs", tmp_path / "in"]
    assert offline(*talk, "--output-dir", tmp_path / "both") == 0
    assert offline(*talk, "--output-dir", tmp_path / "codes", "--stage", "talker") == 0
    assert not list((tmp_path / "codes").glob("*.wav"))
    decode = ["--stage", "code2wav", "--slots", 2, "--inputs", tmp_path / "codes"]
    assert offline(*decode, "--output-dir", tmp_path / "later") == 0
    for index in range(3):
        at_once, _ = soundfile.read(tmp_path / f"both/{index}.wav", dtype="int16")
        later, _ = soundfile.read(tmp_path / f"later/{index}.wav", dtype="int16")
        assert np.array_equal(at_once, later)
        words = [
            json.loads((tmp_path / folder / f"{index}.json").read_text())["pieces"]
            for folder in ("both", "codes")
        ]
        assert words[0] == words[1]
    assert offline(*decode, "--output-dir", tmp_path / "later") == 0
    assert set(statuses(tmp_path / "later").values()) == {"skipped"}
    assert offline(*decode, "--output-dir", tmp_path / "later", "--layout", "agent-right") == 0
    both_speakers, _ = soundfile.read(tmp_path / "later/0.wav", dtype="int16")
    caller, _ = soundfile.read(tmp_path / "in/0.wav", dtype="int16")
    agent, _ = soundfile.read(tmp_path / "both/0.wav", dtype="int16")
    assert np.array_equal(both_speakers, np.stack([caller, agent], 1))


def test_captions_carry_the_words(tmp_path: Path) -> None:
    write_recordings(tmp_path / "in", [40_000])
    options = ["--voice", "TINY0", "--seed", 3, "--layout", "agent-left"]
    many = ["--inputs", tmp_path / "in", "--output-dir", tmp_path / "out", "--with-captions"]
    assert offline(*options, *many) == 0
    one = ["--input", tmp_path / "in/0.wav", "--captions", tmp_path / "one.vtt"]
    assert offline(*options, *one, "--output", tmp_path / "one.wav") == 0
    captions = (tmp_path / "out/0.vtt").read_text(encoding="utf-8")
    assert captions.startswith("WEBVTT\n") and "<v Agent>" in captions
    assert captions == (tmp_path / "one.vtt").read_text(encoding="utf-8")
    assert (tmp_path / "one.wav").read_bytes() == (tmp_path / "out/0.wav").read_bytes()


def test_what_cannot_be_done_is_reported_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recordings(tmp_path, [4_000, 4_000])
    (tmp_path / "broken.wav").write_bytes(b"RIFF nothing")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0, dtype=np.int16), SAMPLE_RATE_HZ)
    lines = [
        {"input": "0.wav"},
        {"input": "broken.wav"},
        {"input": "missing.mp3"},
        {"input": "empty.wav"},
        {"input": "0.wav", "name": "nobody", "voice": "NOBODY"},
        {"input": "0.wav", "name": "novel", "persona": "word " * 5_000},
        {"input": "1.wav"},
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "out"
    options = ["--inputs", tmp_path / "list.jsonl", "--output-dir", out, "--voice", "TINY0"]
    assert offline(*options, "--slots", 2) == 1
    report = report_of(out)
    done = [name for name, entry in report.items() if entry["status"] == "done"]
    assert sorted(done) == ["0", "1"] and len(report) == len(lines)
    for name, message in [
        ("broken", "cannot be read as audio"),
        ("missing", "missing.mp3"),
        ("empty", "no audio"),
        ("nobody", "TINY0"),
        ("novel", "persona"),
    ]:
        assert message in report[name]["error"]
        assert report[name]["status"] == "failed"
    written = sorted(path.name for path in out.rglob("*"))
    assert written == ["0.json", "0.wav", "1.json", "1.wav", "report.jsonl"]
    assert "2 done, 0 skipped, 5 failed" in capsys.readouterr().err


def test_the_same_command_takes_up_what_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recordings(tmp_path / "in", [6_000, 9_000, 4_000])
    out = tmp_path / "out"
    options = ["--inputs", tmp_path / "in", "--output-dir", out, "--voice", "TINY0", "--slots", 2]

    num_written = 0

    def end(*args: object, **options: object) -> None:
        nonlocal num_written
        num_written += 1
        if num_written > 1:
            raise KeyboardInterrupt
        write_audio(*args, **options)

    write_audio = results.write_audio
    with monkeypatch.context() as patch:
        patch.setattr(talk_stage, "write_audio", end)
        assert offline(*options) == 130
    assert len(list(out.glob("*.json"))) == 1, "the other recordings have nothing"
    assert len(list(out.glob("*"))) == 3
    assert offline(*options) == 0
    assert sorted(statuses(out).values()) == ["done", "done", "skipped"]

    (out / "1.wav").unlink()
    (out / "2.json").write_text("{}")
    assert offline(*options) == 0
    assert statuses(out) == {"0": "skipped", "1": "done", "2": "done"}


def test_other_wishes_make_other_outputs_and_the_same_ones_load_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recordings(tmp_path / "in", [6_000, 4_000])
    out = tmp_path / "out"
    options = ["--inputs", tmp_path / "in", "--output-dir", out, "--voice", "TINY0"]
    assert offline(*options) == 0
    first = {path: path.read_bytes() for path in out.glob("*.wav")}
    with monkeypatch.context() as patch:
        patch.setattr(talk_stage, "load_talker", None)
        assert offline(*options) == 0
    assert set(statuses(out).values()) == {"skipped"}
    assert all(path.read_bytes() == audio for path, audio in first.items())
    (out / "0.wav").unlink()
    assert offline(*options) == 0
    assert statuses(out) == {"0": "done", "1": "skipped"}
    for change in (["--persona", "You are new."], ["--seed", 5], ["--layout", "agent-left"]):
        assert offline(*options, *change) == 0
        assert set(statuses(out).values()) == {"done"}


def test_a_disk_that_is_full_fails_one_recording_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recordings(tmp_path / "in", [6_000, 4_000])
    out, write = tmp_path / "out", soundfile.write

    def write_part(path: Path, *args: object, **options: object) -> None:
        write(path, *args, **options)
        if path.name.startswith(".0"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(soundfile, "write", write_part)
    options = ["--inputs", tmp_path / "in", "--output-dir", out, "--voice", "TINY0"]
    assert offline(*options, "--with-codes") == 1
    assert statuses(out) == {"0": "failed", "1": "done"}
    assert "No space" in report_of(out)["0"]["error"]
    names = {path.name for path in out.iterdir()}
    assert names == {"0.safetensors", "1.json", "1.safetensors", "1.wav", "report.jsonl"}


def test_codes_that_are_none_are_reported(tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.mkdir()
    results.write_codes(codes / "bare.safetensors", np.ones((9, 3), dtype=np.int64), {})
    results.write_codes(codes / "high.safetensors", np.full((9, 3), 9_999), {})
    results.write_codes(codes / "short.safetensors", np.ones((8, 3), dtype=np.int64), {})
    results.write_codes(codes / "none.safetensors", np.ones((9, 0), dtype=np.int64), {})
    results.write_codes(codes / "odd.safetensors", np.ones((9, 3), dtype=np.int64), {"origin": "3"})
    (codes / "garbage.safetensors").write_bytes(b"garbage")
    options = ["--stage", "code2wav", "--inputs", codes, "--output-dir", codes]
    assert offline(*options) == 1
    assert [name for name, status in statuses(codes).items() if status == "done"] == ["bare"]
    assert soundfile.info(codes / "bare.wav").frames == 3 * FRAME_SAMPLES
    assert offline(*options, "--layout", "agent-left") == 1
    assert "whom the agent talked to" in report_of(codes)["bare"]["error"]


def test_codes_with_another_caller_are_reported(tmp_path: Path) -> None:
    write_recordings(tmp_path / "in", [6_000])
    talk = ["--inputs", tmp_path / "in", "--voice", "TINY0", "--stage", "talker"]
    assert offline(*talk, "--output-dir", tmp_path / "out") == 0
    write_recordings(tmp_path / "in", [5_000])
    decode = ["--inputs", tmp_path / "out", "--stage", "code2wav", "--layout", "agent-left"]
    assert offline(*decode, "--output-dir", tmp_path / "out") == 1
    assert "is not the recording" in report_of(tmp_path / "out")["0"]["error"]


def test_codes_say_what_they_came_of(tmp_path: Path) -> None:
    write_recordings(tmp_path / "in", [6_000])
    talk = ["--inputs", tmp_path / "in", "--voice", "TINY0", "--stage", "talker", "--seed", 9]
    assert offline(*talk, "--output-dir", tmp_path / "out", "--persona", "You are.") == 0
    with safe_open(tmp_path / "out/0.safetensors", "numpy") as file:
        about = file.metadata()
        assert file.get_tensor("tokens").shape == (9, -(-6_000 // FRAME_SAMPLES))
    origin = json.loads(about["origin"])
    assert (origin["voice"], origin["persona"]) == ("TINY0", "You are.")
    assert origin["sampling"]["seed"] == 9 and about["num_samples"] == "6000"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--input"),
        (["--input", "TMP/a.wav", "--inputs", "TMP"], "not both"),
        (["--inputs", "TMP/in", "--voice", "TINY0"], "--output-dir"),
        (["--inputs", "TMP/in", "--output-dir", "TMP/out"], "--voice"),
        (["--inputs", "TMP/in", "--output-dir", "TMP/in", "--voice", "TINY0"], "output folder"),
        (["--inputs", "TMP/in", "--output-dir", "TMP/in/0.wav", "--voice", "TINY0"], "a file"),
        (["--inputs", "TMP/none", "--output-dir", "TMP/out", "--voice", "TINY0"], "none"),
        (["--inputs", "TMP/in", "--output-dir", "TMP/out", "--output", "TMP/a.wav"], "--output"),
        (
            ["--inputs", "TMP/in", "--output-dir", "TMP/out", "--voice", "A", "--slots", "0"],
            "slots",
        ),
        (["--inputs", "TMP/in", "--output-dir", "TMP/out", "--voice", "A", "--seed", "-1"], "seed"),
        (["--input", "TMP/in/0.wav", "--output", "TMP/a.wav"], "--voice"),
        (
            ["--inputs", "TMP/in/list.txt", "--output-dir", "TMP/in", "--voice", "A"],
            "would replace the recording",
        ),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_status_2(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recordings(tmp_path / "in", [2_000])
    (tmp_path / "in" / "list.txt").write_text("0.wav\n")
    assert offline(*(option.replace("TMP", str(tmp_path)) for option in options)) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("livekit-personaplex: error: ") and message in line
    assert not (tmp_path / "out" / "report.jsonl").exists()
