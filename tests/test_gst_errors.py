"""What goes wrong around the element is an element error that says what to do about it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats
from livekit_personaplex.wire.protocol import OpenRequest
from tests.gst_harness import FRAME_NS, GStreamer, Report, talk_properties, user_pcm

RESOURCE, STREAM = "gst-resource-error-quark", "gst-stream-error-quark"
BUSY, OPEN_READ_WRITE, CLOSE, READ, SETTINGS = 4, 7, 8, 9, 13
FORMAT = 11
WAIT = [["wait_end"]]
TO_THE_END = [["state", "PLAYING"], ["begin"], ["audio", 0, 0, 19_200], ["eos"], ["wait_end"]]


@contextmanager
def fake_engine(
    address: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], EngineAddress]]:
    """An engine process without a model, for tests that end it."""
    script = Path(__file__).with_name("fake_engine_process.py")
    with subprocess.Popen(
        [sys.executable, str(script), "fine", address],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            assert process.stdout is not None
            ready, _, listening = process.stdout.readline().strip().partition(" ")
            assert ready == "ready"
            yield process, EngineAddress.parse(listening)
        finally:
            process.kill()


def run_with(gstreamer: GStreamer, properties: dict[str, Any], **environment: str) -> Report:
    script = {"user": gstreamer.keep(user_pcm(10)), "steps": TO_THE_END}
    return gstreamer.run({**script, "properties": properties}, **environment)


@pytest.mark.parametrize(
    ("properties", "code", "told"),
    [
        ({"engine": "unix:/nowhere/e.sock"}, OPEN_READ_WRITE, "is it running there?"),
        ({"engine": "127.0.0.1:1"}, OPEN_READ_WRITE, "no engine answers at 127.0.0.1:1"),
        ({"engine": "somewhere"}, SETTINGS, "unix:PATH, HOST:PORT or http://HOST:PORT"),
        ({}, SETTINGS, "set the property engine, or PERSONAPLEX_ENGINE"),
        ({"engine": "TINY", "voice": "NOVA"}, SETTINGS, "TINY0"),
        ({"engine": "TINY", "persona": "word " * 5_000}, SETTINGS, "persona"),
    ],
)
def test_a_session_that_cannot_be_opened_says_why_in_the_engines_words(
    gstreamer: GStreamer,
    tiny_engine: EngineAddress,
    properties: dict[str, str],
    code: int,
    told: str,
) -> None:
    if properties.get("engine") == "TINY":
        properties = {**properties, "engine": str(tiny_engine)}
    report = run_with(gstreamer, properties)
    assert report["values"] == ["failure"]
    assert report.error[:3] == ("p", RESOURCE, code)
    assert told in report.error[3]


def test_an_engine_and_its_token_may_come_from_the_environment(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = run_with(gstreamer, {"voice": "TINY0"}, PERSONAPLEX_ENGINE=str(tiny_engine))
    assert report["eos"] and len(report.pcm) == 19_200
    refused = run_with(gstreamer, {}, PERSONAPLEX_ENGIN="x")
    assert refused.error[2] == SETTINGS and "PERSONAPLEX_ENGIN" in refused.error[3]


def test_an_engine_on_tcp_wants_its_token(gstreamer: GStreamer) -> None:
    with fake_engine("127.0.0.1:0", PERSONAPLEX_TOKEN="secret") as (_, address):
        known = run_with(gstreamer, {"engine": str(address), "token": "secret"})
        refused = run_with(gstreamer, {"engine": str(address), "token": "wrong"})
    assert known["eos"] and len(known.pcm) == 19_200
    assert refused.error[:3] == ("p", RESOURCE, SETTINGS)
    assert "refused the token" in refused.error[3] and "wrong" not in refused.error[3]


def test_a_full_engine_is_busy(gstreamer: GStreamer, tiny_engine: EngineAddress) -> None:
    @asynccontextmanager
    async def all_slots_taken() -> AsyncIterator[None]:
        request = OpenRequest(voice="TINY0", persona="", sampling=Sampling())
        sessions = [await EngineSession.open(tiny_engine, request) for _ in range(2)]
        yield
        for session in sessions:
            await session.aclose()

    async def run() -> Report:
        async with all_slots_taken():
            return await asyncio.to_thread(run_with, gstreamer, talk_properties(tiny_engine))

    report = asyncio.run(run())
    assert report["values"] == ["failure"]
    assert report.error[:3] == ("p", RESOURCE, BUSY) and "all 2 slots" in report.error[3]


@pytest.mark.parametrize(
    ("told_by", "code", "told"),
    [
        (signal.SIGKILL, READ, "ended without a goodbye"),
        (signal.SIGTERM, CLOSE, "shutting down"),
    ],
)
@pytest.mark.parametrize("live_latency_ms", [None, 0])
def test_an_engine_that_ends_in_mid_stream_ends_the_stream(
    gstreamer: GStreamer,
    tmp_path: Path,
    live_latency_ms: int | None,
    told_by: signal.Signals,
    code: int,
    told: str,
) -> None:
    script = {} if live_latency_ms is None else {"live_latency_ms": live_latency_ms}
    with fake_engine(f"unix:{tmp_path}/engine.sock") as (process, address):
        report = gstreamer.run(
            {
                **script,
                "properties": {"engine": str(address), "voice": "ANN"},
                "user": gstreamer.keep(user_pcm(10)),
                "steps": [
                    *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, 19_200], ["wait_out", 10]],
                    *[["kill", process.pid, int(told_by)], ["wait_end"]],
                    *[["audio", 800, 0, 960], ["wait_end_of_stream"]],
                ],
            }
        )
    assert report.error[:3] == ("p", RESOURCE, code)
    assert told in report.error[3]
    assert len(report["errors"]) == 1
    assert report["flows"][-1] == "error"
    assert report["sink_eos"]  # so that what is written downstream is finished


def test_values_that_no_property_takes_are_refused_when_they_are_set(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "properties": {},
            "steps": [
                *[["refuse", "seed", -2], ["refuse", "seed", 2**63]],
                *[["refuse", "text-temperature", 10.1], ["refuse", "audio-temperature", -0.1]],
                *[["refuse", "text-top-k", 0], ["refuse", "audio-top-k", 32_001]],
                *[["refuse", "stats", None], ["set", "token", "secret"], ["unreadable", "token"]],
                *[["set", "seed", 2**63 - 1], ["get", "seed"], ["set", "greeting", None]],
                *[["get", "greeting"], ["get", "engine"], ["get", "text-temperature"]],
            ],
        }
    )
    assert report["values"] == [True] * 8 + [2**63 - 1, "", "", 0.7]


def test_a_greeting_begins_the_agents_words(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine, greeting="today you"),
            "words": True,
            "user": gstreamer.keep(user_pcm(60)),
            "steps": [["state", "PLAYING"], ["begin"], ["audio", 0, 0, 115_200], ["eos"], *WAIT],
        }
    )
    assert "".join(text for _, text in report.words).strip().startswith("today you")


def test_audio_in_another_format_is_refused(
    gstreamer: GStreamer, tiny_engine: EngineAddress
) -> None:
    talking = talk_properties(tiny_engine)
    linked = gstreamer.launch(
        "audiotestsrc ! audio/x-raw,rate=48000 ! "
        f"personaplex engine={tiny_engine} voice=TINY0 ! fakesink"
    )
    assert linked.returncode != 0 and "can't handle caps" in linked.stdout + linked.stderr
    changed = gstreamer.run(
        {
            "properties": talking,
            "user": gstreamer.keep(user_pcm(10)),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["audio", 0, 0, 9_600], ["caps", 24_000]],
                *[["audio", 400, 9_600, 19_200], ["wait_out", 10]],
                *[["caps", 16_000], ["audio", 800, 0, 480]],
            ],
        }
    )
    assert changed["flows"][-2:] == ["ok", "not-negotiated"]
    assert changed.times_ns == [index * FRAME_NS for index in range(10)]


@pytest.mark.parametrize(
    ("segment", "told"), [(["bytes", 1.0], "put a parser before it"), (["time", 2.0], "rate 2")]
)
def test_audio_that_no_conversation_can_follow_is_refused(
    gstreamer: GStreamer, tiny_engine: EngineAddress, segment: list[object], told: str
) -> None:
    report = gstreamer.run(
        {
            "properties": talk_properties(tiny_engine),
            "user": gstreamer.keep(user_pcm(2)),
            "steps": [
                *[["state", "PLAYING"], ["begin"], ["segment", *segment], ["wait_end"]],
                *[["audio", 0, 0, 960]],
            ],
        }
    )
    assert report.error[:3] == ("p", STREAM, FORMAT) and told in report.error[3]
    assert report["flows"] == ["error"]
    assert asyncio.run(fetch_stats(tiny_engine)).used == 0
