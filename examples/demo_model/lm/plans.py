"""Call plans made by worker processes, and what the language model needs of a plan and a bank."""

import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PLANS_A_PARCEL = 32
_PARCELS_WAITING = 24
_WAIT_S = 240.0


class PlacementLike(Protocol):
    """An agent's utterance on the frame grid; an early end cuts it."""

    @property
    def utterance(self) -> int:
        """Its number in the bank."""

    @property
    def other(self) -> int:
        """An utterance of the same form."""

    @property
    def frame(self) -> int:
        """First frame."""

    @property
    def end_frame(self) -> int:
        """Frame after the last."""


class PlanLike(Protocol):
    """A call: see `calls.CallPlan`."""

    persona: str
    prompt: int
    frames: int
    caller: list[tuple[int, int]]
    text: NDArray[np.int16]
    heard: NDArray[np.int16]
    fact: NDArray[np.bool_]
    pace: float

    @property
    def agent(self) -> Sequence[PlacementLike]:
        """The agent's utterances, in order."""


Planner = Callable[[np.random.Generator, bool], PlanLike]
"""Makes one plan; True keeps to what training never has."""
PlannerFactory = Callable[[], Planner]
"""Called once in each worker process."""


class PlanSource:
    """Worker processes that plan calls without end. A context manager."""

    def __init__(
        self, make_planner: PlannerFactory, *, workers: int, seed: tuple[int, ...]
    ) -> None:
        """Start the workers.

        Args:
            make_planner: Picklable.
            workers: Processes.
            seed: Another one gives other calls.
        """
        context = multiprocessing.get_context("spawn")
        self._parcels: multiprocessing.Queue[list[PlanLike]] = context.Queue(_PARCELS_WAITING)
        self._workers: list[BaseProcess] = [
            context.Process(
                target=_work, args=(make_planner, self._parcels, (*seed, number)), daemon=True
            )
            for number in range(workers)
        ]
        for worker in self._workers:
            worker.start()

    def __enter__(self) -> "PlanSource":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        self._parcels.cancel_join_thread()

    def take(self) -> list[PlanLike]:
        """Give the next plans; waits for them.

        Raises:
            RuntimeError: A worker has ended, or none made anything for minutes.
        """
        for _ in range(int(_WAIT_S)):
            try:
                return self._parcels.get(timeout=1.0)
            except queue.Empty:
                if any(worker.exitcode is not None for worker in self._workers):
                    break
        raise RuntimeError("the processes that plan calls have ended or hang; see their output")

    @property
    def is_ready(self) -> bool:
        """Whether plans are there to be taken without a wait."""
        return not self._parcels.empty()


def _work(
    make_planner: PlannerFactory,
    parcels: "multiprocessing.Queue[list[PlanLike]]",
    seed: tuple[int, ...],
) -> None:
    os.nice(5)
    draw, plan = np.random.default_rng(seed), make_planner()
    while True:
        parcels.put([plan(draw, False) for _ in range(PLANS_A_PARCEL)])
