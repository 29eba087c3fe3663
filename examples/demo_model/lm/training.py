"""One step of the language model's training, and what must be kept to go on later.

On a GPU the whole step - noise, forward, backward, update - is recorded once as a CUDA graph and
replayed: the network is so small that launching its kernels one by one would take longer than they.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.losses import METRICS, Batch, TrainingLoss
from examples.demo_model.lm.names import load_product_tensors, product_tensors

_EAGER_STEPS = 3
_PART_BYTES = 14 << 20
_STATE = "state.pt"
_OWN_OPTIONS = ("lr", "fused", "capturable", "foreach")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate: a short rise, then half a cosine down to a floor over the planned time."""

    peak: float = 2e-3
    warmup_steps: int = 200
    floor: float = 0.02

    def rate(self, step: int, progress: float) -> float:
        """Give the rate of a step.

        Args:
            step: From 0; steps since the optimizer began to know the network.
            progress: Part of the planned time that is over, 0 to 1.
        """
        cosine = 0.5 + 0.5 * math.cos(math.pi * min(1.0, progress))
        rise = min(1.0, (step + 1) / self.warmup_steps)
        return self.peak * rise * (self.floor + (1.0 - self.floor) * cosine)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far training has come."""

    steps: int = 0
    elapsed_s: float = 0.0
    calls: int = 0
    commands: int = 0


def make_optimizer(net: TrainingLm, device: torch.device) -> torch.optim.AdamW:
    """Make AdamW; only matrices that multiply are decayed, tables of tokens are not."""
    tables = {id(net.tables), id(net.depth_text), id(net.depth_audio)}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for weight in net.parameters():
        is_matrix = weight.dim() > 1 and id(weight) not in tables
        (decayed if is_matrix else plain).append(weight)
    is_gpu = device.type == "cuda"
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=torch.tensor(0.0, device=device) if is_gpu else 0.0,
        betas=(0.9, 0.95),
        fused=is_gpu,
        capturable=is_gpu,
    )


class Trainer:
    """A network that is being trained."""

    def __init__(
        self, net: TrainingLm, loss: TrainingLoss, device: torch.device, *, use_graph: bool
    ) -> None:
        """Make an optimizer.

        Args:
            net: On ``device``.
            loss: What it is trained for.
            device: Where.
            use_graph: Record the step; only on a GPU.
        """
        self.net = net
        self.optimizer = make_optimizer(net, device)
        self._loss, self._device = loss, device
        self._use_graph = use_graph and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch | None = None
        self._metrics = torch.zeros(len(METRICS), device=device)
        self._steps_here = 0
        self.metrics_sum = torch.zeros(len(METRICS), device=device)

    def step(self, batch: Batch, rate: float) -> None:
        """Train on a batch; adds to ``metrics_sum``. Does not wait for the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if not self._use_graph:
            self._run(batch)
        elif self._steps_here < _EAGER_STEPS:
            self._run_aside(batch)
        else:
            self._replay(batch)
        self._steps_here += 1
        self.metrics_sum += self._metrics

    def _run(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss, metrics = self._loss(self.net, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self._metrics.copy_(metrics)

    def _run_aside(self, batch: Batch) -> None:
        """Run on another stream, as must be done before a recording."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run(batch)
        torch.cuda.current_stream().wait_stream(stream)

    def _replay(self, batch: Batch) -> None:
        if self._graph is None and not self._record(batch):
            self._run(batch)
            return
        assert self._graph is not None and self._batch is not None
        self._batch.columns.copy_(batch.columns)
        self._batch.heard.copy_(batch.heard)
        self._batch.role.copy_(batch.role)
        self._graph.replay()

    def _record(self, batch: Batch) -> bool:
        """Record the step, without running it; where that fails steps are run one by one."""
        self._batch = Batch(batch.columns.clone(), batch.heard.clone(), batch.role.clone())
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._run(self._batch)
        except RuntimeError as error:
            print(f"the step cannot be recorded and is run as it is: {error}", flush=True)
            self._use_graph = False
            return False
        self._graph = graph
        return True

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Take over an optimizer's state; how it runs stays as this device wants it."""
        own = [{key: group[key] for key in _OWN_OPTIONS} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state)
        for group, options in zip(self.optimizer.param_groups, own, strict=True):
            group.update(options)


def save(folder: Path, trainer: Trainer, progress: Progress) -> None:
    """Write all that is needed to go on, and the weights alone in files of at most 14 MiB.

    Raises:
        RuntimeError: A weight is no finite number; what was saved before stays.
    """
    weights = trainer.net.state_dict()
    if not all(bool(torch.isfinite(weight).all()) for weight in weights.values()):
        raise RuntimeError("training has diverged: start again from the last save, lower --rate")
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"progress": progress_values(progress)}
    state = {**kept, "net": weights, "optimizer": trainer.optimizer.state_dict()}
    partial = folder / (_STATE + ".partial")
    torch.save(state, partial)
    os.replace(partial, folder / _STATE)
    _save_parts(folder, trainer.net, progress)


def restore(folder: Path, trainer: Trainer) -> tuple[Progress, bool]:
    """Go on from what `save` wrote, if there is anything.

    Returns:
        How far it had come, and whether the optimizer's state was there as well.
    """
    path = folder / _STATE
    if path.is_file():
        state = torch.load(path, map_location="cpu", weights_only=True)
        trainer.net.load_state_dict(state["net"])
        trainer.load_optimizer(state["optimizer"])
        return progress_of(state["progress"]), True
    parts = sorted(folder.glob("weights-*.safetensors"))
    if not parts:
        return Progress(), False
    tensors = load_weights(folder)
    load_product_tensors(trainer.net, tensors)
    with torch.no_grad():
        trainer.net.heard_norm.alpha.copy_(tensors["heard_norm.alpha"])
        trainer.net.heard_head.copy_(tensors["heard_head"])
    return progress_of(tensors["progress"].tolist()), False


def count_commands(folder: Path) -> int:
    """Count the commands that have saved so far."""
    parts = load_weights(folder)
    return progress_of(parts["progress"].tolist()).commands if parts else 0


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights that `save` wrote, by the checkpoint's names, and training's own."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("weights-*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def progress_values(progress: Progress) -> list[float]:
    """Give the progress as numbers."""
    return [progress.steps, progress.elapsed_s, progress.calls, progress.commands]


def progress_of(values: list[float]) -> Progress:
    """Read what `progress_values` gave."""
    steps, elapsed_s, calls, commands = values
    return Progress(int(steps), elapsed_s, int(calls), int(commands))


def moved(progress: Progress, *, steps: int, elapsed_s: float, calls: int) -> Progress:
    """Give the progress after some more steps."""
    return replace(
        progress,
        steps=progress.steps + steps,
        elapsed_s=progress.elapsed_s + elapsed_s,
        calls=progress.calls + calls,
    )


def _save_parts(folder: Path, net: TrainingLm, progress: Progress) -> None:
    tensors = {name: t.to(torch.bfloat16) for name, t in product_tensors(net).items()}
    tensors["heard_norm.alpha"] = net.heard_norm.alpha.detach().cpu().clone()
    tensors["heard_head"] = net.heard_head.detach().to("cpu", torch.bfloat16)
    tensors["progress"] = torch.tensor(progress_values(progress), dtype=torch.float64)
    parts: list[dict[str, torch.Tensor]] = [{}]
    room = _PART_BYTES
    for name, tensor in tensors.items():
        room -= tensor.nbytes
        if room < 0:
            parts.append({})
            room = _PART_BYTES - tensor.nbytes
        parts[-1][name] = tensor
    for number, part in enumerate(parts):
        partial = folder / f"weights-{number}.partial"
        save_file(part, partial)
        os.replace(partial, folder / f"weights-{number}.safetensors")
