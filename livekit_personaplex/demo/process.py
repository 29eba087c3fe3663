"""A child process whose output is kept and can be waited for, and which always ends with us.

Blocking and thread-safe: one reader thread collects what the child writes.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from typing_extensions import Self

from livekit_personaplex.demo.orphan_guard import OrphanGuard
from livekit_personaplex.errors import PersonaPlexError

_TAIL_LINES = 20
_EXIT_GRACE_S = 2.0


class LoggedProcess:
    """Runs one program in a session of its own, so that a terminal's Ctrl-C reaches only us.

    It ends with this process, whatever ends this one.

    Args:
        name: What to call it in errors.
        command: Program and arguments.
        environment: The child's whole environment; None inherits ours.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._guard = OrphanGuard(self._process.pid)
        self._reader = threading.Thread(target=self._read, name=f"{name} output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the child, which leads a process group of the same number."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.poll()

    def wait_for(self, text: str, *, timeout_s: float, after: int = 0) -> str:
        """Block until a line with ``text`` has been written and return it.

        Args:
            text: What the line contains.
            timeout_s: How long to wait.
            after: Index of the first line that counts.

        Raises:
            PersonaPlexError: It ended, or wrote no such line in time; carries its last lines.
        """
        deadline = time.monotonic() + timeout_s
        seen = after
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if text in line:
                        return line
                seen = max(seen, len(self.lines))
                left_s = deadline - time.monotonic()
                if not self._reader.is_alive() and seen == len(self.lines):
                    raise PersonaPlexError(self._account(self._ended_without(text)))
                if left_s <= 0:
                    raise PersonaPlexError(
                        self._account(f"did not write {text!r} within {timeout_s:g} s")
                    )
                self._changed.wait(min(left_s, 0.5))

    def wait_for_end(self, *, timeout_s: float) -> int:
        """Block until it has ended by itself and everything it wrote is here.

        Returns:
            Its exit status.

        Raises:
            PersonaPlexError: It is still running.
        """
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PersonaPlexError(self._account(f"did not end within {timeout_s:g} s")) from None
        self._guard.release()
        self._reader.join(timeout=2.0)
        return status

    def terminate(self, *, timeout_s: float) -> int:
        """Send SIGTERM and block until it has ended; SIGKILL to what is left of its group then."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill_group()
        self._reader.join(timeout=2.0)
        return self._process.wait()

    def kill_group(self) -> None:
        """End the child and everything that it started in its own process group, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._guard.release()

    def tail(self) -> str:
        """The last lines it wrote."""
        with self._changed:
            return "\n".join(self.lines[-_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.terminate(timeout_s=10.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _ended_without(self, text: str) -> str:
        # Its output is closed a moment before the kernel has a status to give.
        try:
            self._process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            return f"closed its output before it wrote {text!r}"
        return f"ended before it wrote {text!r}"

    def _account(self, what: str) -> str:
        status = self._process.poll()
        state = "it is still running" if status is None else f"its exit status is {status}"
        return f"{self.name} {what} ({state}); its last lines:\n{'-' * 8}\n{self.tail()}"
