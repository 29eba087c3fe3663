"""Running a stage: called as it is on a CPU, recorded once and replayed on a GPU.

A recording is made at start, while no conversation runs, with every row masked, so that neither
warming up nor recording leaves a trace in any state.
"""

from collections.abc import Callable

import torch

_WARM_UP_RUNS = 3
"""Runs before recording: kernels are compiled and libraries choose their algorithms."""


class Replay:
    """One stage, ready to run again and again with the same shapes."""

    def __init__(self, run: Callable[[], None], device: torch.device) -> None:
        """Record the stage when ``device`` is a GPU. Blocks until that is done.

        Args:
            run: The stage; reads and writes static tensors only.
            device: Where it runs.
        """
        self._run = run
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = _record(run)

    def __call__(self) -> None:
        """Run the stage. On a GPU this only launches it."""
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()


def _record(run: Callable[[], None]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_RUNS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    torch.cuda.synchronize()
    return graph
