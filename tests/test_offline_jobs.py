"""What lists of recordings mean, and which are refused before anything is begun."""

import json
from pathlib import Path

import pytest

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.offline.jobs import Job, read_jobs
from livekit_personaplex.sampling import Sampling

DEFAULTS = Job(
    name="", source=Path(), voice="ANN", persona="You are Ann.", sampling=Sampling(seed=7)
)
SUFFIXES = {".wav", ".mp3"}


def jobs_of(inputs: Path, output_dir: Path = Path("/nowhere")) -> list[Job]:
    return read_jobs(inputs, DEFAULTS, suffixes=SUFFIXES, output_dir=output_dir)


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_folder_is_taken_with_what_lies_below_it_in_order(tmp_path: Path) -> None:
    names = ["b.wav", "a.WAV", "sub/c.d.mp3", "notes.txt", ".hidden.wav", ".cache/e.wav"]
    touch(*(tmp_path / name for name in [*names, "out/b.wav"]))
    jobs = jobs_of(tmp_path, tmp_path / "out")
    assert [job.name for job in jobs] == ["a", "b", "sub/c.d"]
    assert jobs[2] == Job(
        name="sub/c.d",
        source=tmp_path / "sub/c.d.mp3",
        voice="ANN",
        persona="You are Ann.",
        sampling=Sampling(seed=7),
    )


def test_a_list_has_paths_that_are_relative_to_its_folder(tmp_path: Path) -> None:
    lines = ["# calls", "", "day/one.wav", f"{tmp_path}/far/two.mp3", "../three.flac"]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    jobs = jobs_of(tmp_path / "list.txt")
    assert [(job.name, job.source) for job in jobs] == [
        ("day/one", tmp_path / "day/one.wav"),
        ("two", tmp_path / "far/two.mp3"),
        ("three", tmp_path / "../three.flac"),
    ]


def test_a_line_of_json_says_what_is_its_own_and_the_rest_is_for_all(tmp_path: Path) -> None:
    lines = [
        {"input": "a.wav"},
        {"input": "a.wav", "name": "x/y", "voice": "BOB", "persona": "", "seed": None},
        {"input": "b.wav", "greedy": True, "text_temperature": 0.5, "audio_top_k": 10, "seed": 1},
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    plain, named, sampled = jobs_of(tmp_path / "list.jsonl")
    assert (plain.name, plain.voice, plain.sampling.seed) == ("a", "ANN", 7)
    assert (named.name, named.voice, named.persona) == ("x/y", "BOB", "")
    assert named.sampling == Sampling()
    assert sampled.sampling == Sampling(greedy=True, text_temperature=0.5, audio_top_k=10, seed=1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: expected a JSON object"),
        ("[]", "line 2: expected a JSON object, got list"),
        ("[" * 100_000, "line 2: expected a JSON object"),
        ("{}", "line 2: expected a path as input"),
        ('{"input": 3}', "line 2: input must be a text"),
        ('{"input": "a.wav", "speaker": "ANN"}', "line 2: unknown fields speaker; known are"),
        ('{"input": "a.wav", "seed": -2}', "line 2: seed must lie in"),
        ('{"input": "a.wav", "seed": "1"}', "line 2: seed must be a whole number"),
        ('{"input": "a.wav", "text_temperature": NaN}', "line 2: text_temperature"),
        ('{"input": "a.wav", "name": "../a"}', "line 2: a name is a relative path"),
        ('{"input": "a.wav", "name": "/a"}', "line 2: a name is a relative path"),
        ('{"input": "a.wav", "name": ""}', "line 2: a name is a relative path"),
        ('{"input": "b.mp3", "name": "fine"}', "would both be named fine"),
    ],
)
def test_a_list_with_a_mistake_is_refused_as_a_whole(
    line: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text(f'{{"input": "fine.wav"}}\n{line}\n')
    with pytest.raises(ConfigError, match=message):
        jobs_of(path)


def test_what_is_no_list_or_holds_nothing_is_refused(tmp_path: Path) -> None:
    touch(tmp_path / "a.doc", tmp_path / "empty.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for inputs in (tmp_path, tmp_path / "a.doc", tmp_path / "none.txt", tmp_path / "empty.txt"):
        with pytest.raises(ConfigError, match=r"holds nothing|expected a folder"):
            jobs_of(inputs)
    with pytest.raises(ConfigError, match="cannot be read"):
        jobs_of(tmp_path / "binary.txt")
