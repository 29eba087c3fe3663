"""``livekit-personaplex demo``, as a person would run it: one call, and nothing left behind."""

import json
import re
import sys
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.process import LoggedProcess

pytestmark = pytest.mark.room


def start_demo(*options: str) -> LoggedProcess:
    command = [sys.executable, "-m", "livekit_personaplex.cli.main", "demo", *options]
    return LoggedProcess("demo", command)


def test_the_demo_holds_one_call_and_keeps_the_answer(tmp_path: Path) -> None:
    with start_demo("--seconds", "2", "--output", str(tmp_path)) as demo:
        demo.wait_for("what the caller heard", timeout_s=120.0)
        assert demo.wait_for_end(timeout_s=30.0) == 0, demo.tail()
        shown = "\n".join(demo.lines)
    assert "its speech is noise" in shown
    assert re.search(r" s  caller  Hello, what are your opening hours today\?", shown)
    assert re.search(r" s  agent   \S", shown)
    latency = re.search(r"latency: (\d+) ms", shown)
    assert latency is not None and 100 < int(latency.group(1)) < 1000
    answer, rate_hz = soundfile.read(tmp_path / "answer.wav")
    assert rate_hz == SAMPLE_RATE_HZ
    assert len(answer) > 4 * rate_hz
    assert np.abs(answer).max() > 0.05


def test_a_demo_that_is_interrupted_takes_everything_it_started_with_it(tmp_path: Path) -> None:
    with start_demo("--output", str(tmp_path)) as demo:
        demo.wait_for("calling the agent", timeout_s=120.0)
        started = psutil.Process(demo.pid).children(recursive=True)
        assert len(started) >= 3  # LiveKit server, worker, engine
        assert demo.terminate(timeout_s=20.0) == 130
        _, alive = psutil.wait_procs(started, timeout=10.0)
        assert not alive


def test_the_demo_serves_its_page_to_this_machine_until_it_is_interrupted() -> None:
    options = ("--page", "--port", "0", "--persona", "You are Bob.", "--no-captions")
    with start_demo(*options) as demo:
        line = demo.wait_for("Now you: open http://127.0.0.1:", timeout_s=120.0)
        url = line.split()[-1]
        with urllib.request.urlopen(url, timeout=10.0) as page:
            assert b"<title>PersonaPlex</title>" in page.read()
        with urllib.request.urlopen(f"{url}api/options", timeout=10.0) as answer:
            offered = json.load(answer)
        assert offered["persona"] == "You are Bob."
        assert offered["is_noise"] is True
        assert "TINY0" in offered["voices"]
        assert offered["caller_words"] == "Your words are not shown: --no-captions."
        started = psutil.Process(demo.pid).children(recursive=True)
        assert demo.terminate(timeout_s=20.0) == 0
        _, alive = psutil.wait_procs(started, timeout=10.0)
        assert not alive
