"""The element told what to say, and who has the first word."""

import numpy as np
import pytest

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.wire.address import EngineAddress
from tests.gst_harness import MS, GStreamer, Report, talk_properties, user_pcm

END = [["eos"], ["wait_end"]]


def text_of(report: Report) -> str:
    return "".join(text for _, text in report.words)


def test_words_that_are_given_in_mid_call_are_said_and_the_application_is_told(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "words": True,
            "user": gstreamer.keep(user_pcm(80)),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, 10 * FRAME_SAMPLES]],
                *[["wait_out", 10], ["emit", "say", "today you"]],
                *[["audio", None, 10 * FRAME_SAMPLES, 80 * FRAME_SAMPLES], ["wait_said", 1], *END],
            ],
        }
    )
    assert report["values"][1:] == [0]
    assert report["said"] == [[0, True, ""]]
    late = "".join(text for at_ms, text in report.words if at_ms >= 800)
    assert "today you" in late
    assert report["errors"] == [] and report["stats"]["played-frames"] == 80


def test_words_that_cannot_be_said_are_refused_and_the_call_goes_on(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "words": True,
            "user": gstreamer.keep(user_pcm(30)),
            "steps": [
                *[["emit", "say", "too early"], ["emit", "stop-saying"]],
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, 10 * FRAME_SAMPLES]],
                *[["wait_out", 10], ["emit", "say", "x" * 5_000], ["wait_said", 1]],
                *[["emit", "say", "today you"], ["emit", "stop-saying"], ["wait_said", 2]],
                *[["audio", None, 10 * FRAME_SAMPLES, 30 * FRAME_SAMPLES], *END],
                *[["state", "NULL"], ["emit", "say", "too late"]],
            ],
        }
    )
    assert [value for value in report["values"] if isinstance(value, int)] == [-1, 0, 1, -1]
    (first, first_done, reason), second = report["said"]
    assert (first, first_done) == (0, False) and "4096 bytes" in reason.replace(",", "")
    assert second == [1, False, ""]
    assert "today you" not in text_of(report)
    assert report["errors"] == [] and len(report.times_ns) == 30


def test_with_the_caller_first_the_agent_is_silent_until_the_caller_has_spoken(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    pause = np.zeros(20 * FRAME_SAMPLES, dtype=np.int16)
    pcm = np.concatenate([pause, user_pcm(60)])
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine, **{"first-speaker": "caller"}),
            "words": True,
            "user": gstreamer.keep(pcm),
            "steps": [["state", "PLAYING"], ["begin"], ["audio", 0, 0, len(pcm)], *END],
        }
    )
    assert report.words and report.words[0][0] >= 20 * 80
    assert report["errors"] == []


def test_a_caller_who_stays_silent_is_not_waited_for_for_ever(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    properties = {"first-speaker": "caller", "caller-first-timeout": 800 * MS}
    pause = np.zeros(60 * FRAME_SAMPLES, dtype=np.int16)
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine, **properties),
            "words": True,
            "user": gstreamer.keep(pause),
            "steps": [["state", "PLAYING"], ["begin"], ["audio", 0, 0, len(pause)], *END],
        }
    )
    assert report.words and report.words[0][0] >= 800


@pytest.mark.parametrize(
    ("first_speaker", "greeting"), [("agent", ""), ("caller", "today you"), ("", "")]
)
def test_who_begins_goes_together_with_a_greeting(
    gstreamer: GStreamer, tiny_engine: EngineAddress, first_speaker: str, greeting: str
) -> None:
    properties = {"first-speaker": first_speaker, "greeting": greeting}
    hush = np.zeros(20 * FRAME_SAMPLES, dtype=np.int16)
    pcm = np.concatenate([user_pcm(20), hush, user_pcm(40)])
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine, **properties),
            "words": True,
            "user": gstreamer.keep(pcm),
            "steps": [["state", "PLAYING"], ["begin"], ["audio", 0, 0, len(pcm)], *END],
        }
    )
    assert report["errors"] == [] and report["eos"]
    assert text_of(report).strip().startswith(greeting) and text_of(report)


def test_a_first_speaker_that_nobody_knows_is_refused(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    properties = talk_properties(tiny_engine, **{"first-speaker": "nobody"})
    steps = [["state", "PAUSED"], ["note_messages"]]
    report = gstreamer.run({"properties": properties, "steps": steps})
    assert report["values"] == ["failure"]
    assert "one of model, agent, caller" in report.error[3]
