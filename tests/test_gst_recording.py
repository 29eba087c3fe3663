"""The element in pipelines without a clock: a recording is answered as ``offline`` answers it."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.cli.main import main
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import fetch_stats
from tests.gst_harness import FRAME_NS, MS, TINY, GStreamer, talk_properties, user_pcm
from tests.offline_answers import Answer, make_answer

PERSONA = json.loads((TINY / "golden.json").read_text(encoding="utf-8"))["persona"]
DECODED = "filesrc location={} ! decodebin ! audioconvert ! audioresample"
END = [["wait_end"]]


@pytest.fixture(scope="module")
def answer_of() -> Answer:
    return make_answer()


def say_offline(source: Path, output: Path, *options: str) -> None:
    given = ["--model", str(TINY / "checkpoint"), "--device", "cpu", "--voice", "TINY0"]
    arguments = ["offline", *given, "--input", str(source), "--output", str(output), *options]
    assert main(arguments) == 0


@pytest.mark.parametrize(
    ("offline_options", "properties"),
    [
        (["--greedy", "--persona", PERSONA], f'greedy=true persona="{PERSONA}"'),
        (["--seed", "5"], "seed=5"),
    ],
    ids=["greedy", "sampled"],
)
def test_a_recording_is_answered_as_offline_answers_it(
    gstreamer: GStreamer,
    tiny_engine: EngineAddress,
    tmp_path: Path,
    offline_options: list[str],
    properties: str,
) -> None:
    source, expected, answer = tmp_path / "q.wav", tmp_path / "offline.wav", tmp_path / "a.wav"
    soundfile.write(source, user_pcm(40)[:-500], SAMPLE_RATE_HZ, subtype="PCM_16")
    say_offline(source, expected, *offline_options)
    talking = f"personaplex engine={tiny_engine} voice=TINY0 {properties}"
    done = gstreamer.launch(
        f"{DECODED.format(source)} ! {talking} ! wavenc ! filesink location={answer}"
    )
    assert done.returncode == 0 and "ERROR" not in done.stdout + done.stderr
    assert soundfile.info(answer).samplerate == SAMPLE_RATE_HZ
    assert np.array_equal(
        soundfile.read(answer, dtype="int16")[0], soundfile.read(expected, dtype="int16")[0]
    )


def test_words_come_with_the_time_of_their_frame(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "words": True,
            "user": gstreamer.keep(user_pcm(30)),
            "steps": [["state", "PLAYING"], ["begin"], ["audio", 0, 0, 57_600], ["eos"], *END],
        }
    )
    assert report.words == answer_of(user_pcm(30)).timed_texts() != []
    assert report["eos"] and report["errors"] == []
    assert report["session"]["seed"] == 1 and report["session"]["prompt-steps"] > 0
    assert report["stats"]["played-frames"] == 30
    assert report["modules"] == []  # neither torch nor livekit


def test_any_compressed_recording_at_any_rate_comes_out_as_long_as_it_went_in(
    gstreamer: GStreamer, tiny_engine: EngineAddress, tmp_path: Path
) -> None:
    source = tmp_path / "q.flac"
    stereo = np.stack([np.sin(np.arange(45_423) / 50.0)] * 2, axis=1) * 0.5
    soundfile.write(source, stereo, 44_100)
    report = gstreamer.run(
        {
            "launch": f"{DECODED.format(source)} ! tee name=t ! queue ! "
            f"personaplex name=p engine={tiny_engine} voice=TINY0 greedy=true ! "
            "appsink name=out sync=false t. ! queue ! appsink name=words sync=false"
        }
    )
    heard = sum(len(piece) for piece in report.data("words")) // 2
    assert len(report.pcm) == heard == pytest.approx(45_423 * 24 / 44.1, abs=2)


@pytest.mark.parametrize("told_by", ["discont", "gap"])
def test_a_hole_in_the_recording_is_heard_as_silence(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer, told_by: str
) -> None:
    pcm = user_pcm(30)
    silence = np.zeros(12_000, dtype=np.int16)
    steps = {
        "discont": [["audio", 20_000 / 24 + 500, 20_000, 57_600, True]],
        "gap": [["gap", 20_000 / 24, 500], ["audio", None, 20_000, 57_600]],
    }
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, 20_000]],
                *[*steps[told_by], ["eos"], *END],
            ],
        }
    )
    heard = np.concatenate([pcm[:20_000], silence, pcm[20_000:]])
    assert np.array_equal(report.pcm, answer_of(heard).pcm[: len(heard)])


def test_jitter_of_timestamps_and_missing_ones_make_no_seams(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    pcm = user_pcm(12)
    pieces = [["audio", at * 20 + at % 3 * 7, at * 480, (at + 1) * 480] for at in range(40)]
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], ["begin"], *pieces],
                *[["audio", None, 40 * 480, len(pcm)], ["eos"], *END],
            ],
        }
    )
    assert np.array_equal(report.pcm, answer_of(pcm).pcm)


def test_a_flush_forgets_what_waits_and_keeps_the_conversation(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    pcm = user_pcm(20)
    first, part = 8 * FRAME_SAMPLES, 700
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, first + part], ["wait_out", 8]],
                *[["flush"], ["audio", 5_000, first, len(pcm)], ["eos"], *END],
            ],
        }
    )
    assert report["eos"] and np.array_equal(report.pcm, answer_of(pcm).pcm)
    starts = [index * FRAME_NS for index in range(8)]
    assert report.times_ns == starts + [5_000 * MS + index * FRAME_NS for index in range(12)]


def test_a_pipeline_that_does_not_go_on_holds_the_caller_and_loses_nothing(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    pcm = np.tile(user_pcm(60), 3)
    before = asyncio.run(fetch_stats(tiny_engine))
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "sync": True,
            "user": gstreamer.keep(pcm),
            "steps": [["state", "PAUSED"], ["begin"], ["stall"]],
        }
    )
    _, (num_pieces, is_blocked) = report["values"]
    assert is_blocked
    assert num_pieces * 20 < 5_000  # the queue behind the element holds a second, we hold another
    after = asyncio.run(fetch_stats(tiny_engine))
    assert after.dropped_frames == before.dropped_frames
    assert after.used == 0


def test_a_session_ends_with_the_state_and_the_next_one_is_new(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    pcm = user_pcm(5)
    talk = [["begin"], ["audio", 0, 0, len(pcm)], ["eos"], ["wait_end"]]
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], *talk, ["state", "READY"]],
                *[["forget_end"], ["state", "PLAYING"], *talk],
                ["count_left_elements", 10],
            ],
        }
    )
    assert np.array_equal(report.pcm, np.tile(answer_of(pcm).pcm, 2))
    assert report["values"][-1] == 0
    assert asyncio.run(fetch_stats(tiny_engine)).used == 0
