"""Reads the next files beside the work on those before: a device need not wait for disks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

NUM_AHEAD = 4


def read_ahead(items: Iterable[T], read: Callable[[T], R]) -> Iterator[tuple[T, Future[R]]]:
    """Give every item with what ``read`` makes of it, in order.

    ``read`` runs in a thread of its own, at most `NUM_AHEAD` items ahead; what it raises is raised
    by the future's ``result``.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="read ahead") as executor:
        waiting = deque(
            (item, executor.submit(read, item)) for item in islice(remaining, NUM_AHEAD)
        )
        try:
            while waiting:
                yield waiting.popleft()
                waiting.extend((item, executor.submit(read, item)) for item in islice(remaining, 1))
        finally:
            for _, future in waiting:
                future.cancel()
