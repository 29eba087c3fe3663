"""Real time on a machine that is busy with something else: try again, but only then.

A call breaks up when the machine cannot keep real time, and then no property of the call can be
shown. Worker and engine say so in their logs. Without such a sign a failure stands as it is.
"""

from collections.abc import Callable
from typing import TypeVar

from livekit_personaplex.errors import PersonaPlexError
from tests.rooms.worker import RoomWorker

T = TypeVar("T")

_SIGNS = ("event loop blocked", "ticks take longer than a frame lasts")
_ATTEMPTS = 3


def in_real_time(worker: RoomWorker, attempt: Callable[[], T], *, is_strict: bool = False) -> T:
    """Return what an attempt gives; attempt it again if it failed on a busy machine.

    Args:
        worker: Whose log has the signs.
        attempt: May be called three times.
        is_strict: Also attempt it again if it succeeded on a busy machine.
    """
    for number in range(1, _ATTEMPTS + 1):
        since = len(worker.process.lines)
        try:
            result = attempt()
        except (AssertionError, PersonaPlexError):
            if number == _ATTEMPTS or not _was_busy(worker, since):
                raise
        else:
            if number == _ATTEMPTS or not is_strict or not _was_busy(worker, since):
                return result
    raise AssertionError("unreachable")


def _was_busy(worker: RoomWorker, since: int) -> bool:
    return any(sign in line for line in worker.process.lines[since:] for sign in _SIGNS)
