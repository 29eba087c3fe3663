"""Ends a child's process group when we die without doing it ourselves, even by SIGKILL.

A shell waits at a pipe whose other end is ours alone: the kernel closes it when we are gone. The
kernel could also signal the child itself (PR_SET_PDEATHSIG), but Linux only, at the end of the
thread that started it, and by code that runs between fork and exec, which may hang beside threads.
"""

import subprocess

_SCRIPT = """
read -r _ && exit
kill -s TERM -- "-$1"
sleep "$2"
kill -s KILL -- "-$1"
"""


class OrphanGuard:
    """Watches over one process group from construction until `release`."""

    def __init__(self, group: int, *, grace_s: float = 5.0) -> None:
        """Start the watch.

        Args:
            group: Process group to end.
            grace_s: From SIGTERM to SIGKILL.
        """
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "orphan guard", str(group), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # whoever stops our group does not stop it
        )

    def release(self) -> None:
        """End the watch; the group has ended, or may live. Idempotent."""
        if self._shell.poll() is None:
            self._shell.communicate(b"\n")
