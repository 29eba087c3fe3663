"""Child processes of the demo and the room tests: their output is kept, and they always end."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from livekit_personaplex.demo.orphan_guard import OrphanGuard
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.errors import PersonaPlexError

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)"


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
    child = start(STUBBORN)
    child.wait_for("up", timeout_s=30.0)
    begin_s = time.monotonic()
    assert child.terminate(timeout_s=0.3) == -9
    assert time.monotonic() - begin_s < 10.0


def wait_until_gone(pid: int) -> None:
    """Wait until a process that is not our child has ended; one that nobody reaps has too."""
    end_s = time.monotonic() + 20.0
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        assert time.monotonic() < end_s, "it is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("code", ["time.sleep(60)", "os._exit(1)"], ids=["told", "by itself"])
def test_what_a_child_has_started_ends_with_it(code: str) -> None:
    forked = "import os, sys, time; pid = os.fork(); pid or time.sleep(60); print('up', pid); "
    with start(f"{forked}sys.stdout.flush(); {code}") as child:
        pid = int(child.wait_for("up", timeout_s=30.0).split()[1])
    wait_until_gone(pid)


def test_a_child_ends_with_us_even_when_we_are_killed() -> None:
    owner_code = (
        "import sys, time\n"
        "from livekit_personaplex.demo.process import LoggedProcess\n"
        "code = 'import time; print(1); time.sleep(60)'\n"
        "child = LoggedProcess('child', [sys.executable, '-u', '-c', code])\n"
        "child.wait_for('1', timeout_s=30.0)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", owner_code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            pid = int(owner.stdout.readline())
            assert psutil.pid_exists(pid)
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_until_gone(pid)


def test_a_child_that_ignores_sigterm_ends_with_us_too() -> None:
    child = start(STUBBORN)
    child.wait_for("up", timeout_s=30.0)
    guard = OrphanGuard(child.pid, grace_s=0.1)
    assert guard._shell.stdin is not None
    guard._shell.stdin.close()  # as the kernel does when we die
    assert child.wait_for_end(timeout_s=20.0) == -signal.SIGKILL
    guard._shell.wait(20.0)


def test_a_child_that_has_ended_leaves_no_guard() -> None:
    before = {each.pid for each in psutil.Process().children()}
    with start("import time; time.sleep(60)"):
        assert {each.pid for each in psutil.Process().children()} > before
    assert {each.pid for each in psutil.Process().children()} == before
