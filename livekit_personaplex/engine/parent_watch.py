"""Ties an engine to the process that started it: its end is the end of standard input."""

import os
import signal
import threading
import time
from collections.abc import Callable

GRACE_S = 5.0
"""From the parent's end to a hard exit, should the engine hang."""
STDIN = 0
CHUNK_BYTES = 4096


def watch_parent(on_gone: Callable[[], None], *, exit_code: int) -> None:
    """Ignore SIGINT and SIGTERM, and end with the parent instead.

    A supervisor's terminal, or whoever stops its whole process group, must not take the engine
    away while calls drain: only the supervisor says when, by closing the pipe that is our standard
    input. When it dies, the kernel closes it. Call it from the main thread.

    Args:
        on_gone: Called once, in another thread.
        exit_code: Code of the hard exit, if the process is still there after the grace period.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def wait_for_end() -> None:
        while os.read(STDIN, CHUNK_BYTES):
            pass
        on_gone()
        time.sleep(GRACE_S)
        os._exit(exit_code)

    threading.Thread(target=wait_for_end, name="parent watch", daemon=True).start()
