"""Runs a training step as one CUDA graph: its two thousand kernels then start without Python."""

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UPS = 3


class Replay:
    """A step over tensors of fixed shapes, recorded at its first call.

    The step must not wait for the device, and what it reads besides its arguments must stay where
    it is. Elsewhere than on a GPU, or when not asked to record, it is simply called.
    """

    def __init__(self, step: Callable[[tuple[Tensor, ...]], None], *, record: bool) -> None:
        """Hold the step; nothing runs yet."""
        self._step, self._record = step, record
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()

    def __call__(self, inputs: tuple[Tensor, ...]) -> None:
        """Run the step on these inputs; the first call runs it a few times more to warm up."""
        if self._record and self._graph is None:
            self._inputs = tuple(tensor.clone() for tensor in inputs)
            try:
                self._graph = self._recorded()
            except RuntimeError as error:  # nothing ran while it was recorded
                print(f"the step runs kernel by kernel, it could not be recorded: {error}")
                self._record = False
        if self._graph is None:
            self._step(inputs)
            return
        for held, tensor in zip(self._inputs, inputs, strict=True):
            held.copy_(tensor)
        self._graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._step(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(self._inputs)
        return graph
