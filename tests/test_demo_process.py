"""Child processes of the demo and the room tests: their output is kept, and they always end."""

import sys
import time

import pytest

from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.errors import PersonaPlexError


def start(code: str) -> LoggedProcess:
    return LoggedProcess("child", [sys.executable, "-u", "-c", code])


def test_a_line_can_be_waited_for() -> None:
    with start("import time; print('one'); print('two is here'); time.sleep(60)") as child:
        assert child.wait_for("two", timeout_s=30.0) == "two is here"
        assert child.lines[0] == "one"


def test_a_child_that_ends_early_is_told_with_its_last_lines() -> None:
    with start("print('no such model'); raise SystemExit(3)") as child:
        with pytest.raises(PersonaPlexError, match=r"(?s)exit status is 3.*no such model"):
            child.wait_for("ready", timeout_s=30.0)


def test_a_child_that_ends_slowly_is_told_with_its_exit_status() -> None:
    code = "import os, sys, time; print('bye'); sys.stdout.flush(); os.close(1); os.close(2); "
    with start(code + "time.sleep(0.5); os._exit(3)") as child:
        with pytest.raises(PersonaPlexError, match=r"(?s)ended before.*exit status is 3.*bye"):
            child.wait_for("ready", timeout_s=30.0)


def test_a_child_that_only_closes_its_output_is_told_as_running() -> None:
    code = "import os, sys, time; print('bye'); sys.stdout.flush(); os.close(1); os.close(2); "
    with start(code + "time.sleep(60)") as child:
        with pytest.raises(PersonaPlexError, match=r"(?s)closed its output.*still running.*bye"):
            child.wait_for("ready", timeout_s=30.0)


def test_a_line_that_does_not_come_is_not_waited_for_forever() -> None:
    with start("import time; time.sleep(60)") as child:
        with pytest.raises(PersonaPlexError, match="within 0.2 s"):
            child.wait_for("ready", timeout_s=0.2)


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)"
    child = start(code)
    child.wait_for("up", timeout_s=30.0)
    begin_s = time.monotonic()
    assert child.terminate(timeout_s=0.3) == -9
    assert time.monotonic() - begin_s < 10.0
