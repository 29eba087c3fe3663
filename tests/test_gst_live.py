"""The element in live pipelines: the clock sets the pace, and what is not there is silence."""

import numpy as np
import pytest
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, split_frames
from livekit_personaplex.wire.address import EngineAddress
from tests.gst_harness import FRAME_NS, MS, GStreamer, Report, talk_properties, user_pcm
from tests.offline_answers import Answer, make_answer

SOURCE_LATENCY_MS = 300
"""Far more than this machine stalls for: a test of what is heard, not of how quick it is."""


@pytest.fixture(scope="module")
def answer_of() -> Answer:
    return make_answer()


def test_a_caller_who_is_silent_for_a_while_is_answered_all_the_time(
    gstreamer: GStreamer, tiny_engine: EngineAddress, answer_of: Answer
) -> None:
    pcm = user_pcm(20)
    first, hole_ms, rest = 10 * FRAME_SAMPLES + 600, 1_000, 8 * FRAME_SAMPLES
    resumed_ms = first / 24 + hole_ms
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "live_latency_ms": SOURCE_LATENCY_MS,
            "sync": True,
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["latency"], ["audio", 0, 0, first]],
                *[["audio", resumed_ms, first, first + rest, True], ["eos"], ["wait_end"]],
            ],
        }
    )
    hole = np.zeros(hole_ms * 24, dtype=np.int16)
    heard = np.concatenate([pcm[:first], hole, pcm[first : first + rest]])
    assert report["eos"] and report["errors"] == []
    assert report["values"][1] == [True, (SOURCE_LATENCY_MS + 100) * MS, 2**64 - 1]
    check_unbroken(report, num_samples=len(heard))
    assert report["stats"]["late-samples"] == report["stats"]["skipped-frames"] == 0
    check_answers(report, expected=answer_of(heard).pcm)


def test_an_agent_may_speak_before_its_caller_sends_anything(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "live_latency_ms": 0,
            "steps": [["state", "PLAYING"], ["begin"], ["wait_out", 8], ["eos"], ["wait_end"]],
        }
    )
    assert report["eos"]  # no audio has come: there is nothing left to answer
    check_unbroken(report, num_samples=len(report.pcm))
    assert np.abs(report.pcm).max() > 0


def test_a_pause_stops_the_time_of_the_conversation(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    pcm = user_pcm(20)
    part = 8 * FRAME_SAMPLES
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "live_latency_ms": SOURCE_LATENCY_MS,
            "user": gstreamer.keep(pcm),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, part], ["state", "PAUSED"]],
                *[["sleep", 700], ["state", "PLAYING"], ["audio", 640, part, len(pcm)]],
                *[["eos"], ["wait_end"]],
            ],
        }
    )
    check_unbroken(report, num_samples=len(pcm))
    assert report["stats"]["late-samples"] == report["stats"]["skipped-frames"] == 0


def test_a_sink_that_plays_a_second_late_costs_nothing(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    pcm = user_pcm(12)
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "live_latency_ms": SOURCE_LATENCY_MS,
            "sync": True,
            "user": gstreamer.keep(pcm),
            "queue_buffers": 1,
            "steps": [
                *[["pipeline_latency", 1_400], ["state", "PLAYING"], ["begin"]],
                *[["audio", 0, 0, len(pcm)], ["eos"], ["wait_end"]],
            ],
        }
    )
    check_unbroken(report, num_samples=len(pcm))
    assert report["stats"]["late-samples"] == report["stats"]["skipped-frames"] == 0


def test_a_source_of_gstreamer_s_own_is_answered_on_its_clock(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "launch": "audiotestsrc is-live=true num-buffers=100 samplesperbuffer=480 ! "
            "audio/x-raw,rate=24000 ! "
            f"personaplex name=p engine={tiny_engine} voice=TINY0 ! appsink name=out"
        }
    )
    num_samples = len(report.pcm)
    assert 48_000 <= num_samples < 48_000 + 2 * FRAME_SAMPLES  # its first time is not quite 0
    check_unbroken(report, num_samples=num_samples)


def check_answers(report: Report, *, expected: NDArray[np.int16]) -> None:
    """Assert that what was played, but for silence in place of late answers, is as expected.

    A busy machine may answer late now and then; of the delay some is given back where the agent is
    quiet, by leaving frames out.
    """
    frames = iter(split_frames(expected))
    num_left_out = 0
    for played in report.answers:
        while not np.array_equal(next(frames)[: len(played)], played):
            num_left_out += 1
    assert num_left_out <= report["stats"]["dropped-frames"]
    assert len(report.answers) > len(report.times_ns) / 2


def check_unbroken(report: Report, *, num_samples: int) -> None:
    """Assert that frame follows frame from the begin to the end of the caller's audio."""
    assert len(report.pcm) == num_samples
    assert report.times_ns == [index * FRAME_NS for index in range(len(report.times_ns))]
    assert report["stats"]["played-frames"] == len(report.times_ns)
    assert [is_discont for _, _, is_discont, _ in report["out"]].index(True) == 0
    assert sum(is_discont for _, _, is_discont, _ in report["out"]) == 1
