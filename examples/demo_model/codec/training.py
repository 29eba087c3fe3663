"""The codec's training: phases and learning rate by the clock, steps, what is saved and read back.

Legend: B crops of a batch.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from examples.demo_model.codec.batches import Crops, CropSource, Group
from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.codec.step import METRICS, CodecStep, Phase
from examples.demo_model.replay import Replay

STATE_NAME = "state.pt"
_BETAS = (0.8, 0.99)
_FROZEN_RATE, _ALONE_RATE, _LAST_RATE = 0.1, 0.6, 0.02
"""Parts of the highest learning rate: when codes are frozen, when the decoder goes on alone from
there, at the end. What decides the codes has to have settled before it is frozen."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens when; parts are of the whole training, all commands together.

    Attributes:
        rate: Highest learning rate.
        judge_rate: Of the discriminators.
        warm_steps: Steps over which the learning rate grows.
        bypass_steps: Steps without quantising.
        alone_steps: Steps in which the discriminators learn before the codec hears them.
        ramp_steps: Steps over which their share grows.
        wave_until: Part over which the share of compared waveforms falls to nothing. They teach the
            phases of harmonics; of noise, whose phases nobody can know, they ask for silence, and
            consonants go missing.
        freeze: Part after which codes stay as they are.
        start_vectors: On how many the codebooks are placed.
    """

    rate: float = 1e-3
    judge_rate: float = 5e-4
    warm_steps: int = 200
    bypass_steps: int = 400
    alone_steps: int = 300
    ramp_steps: int = 1000
    wave_until: float = 0.25
    freeze: float = 0.6
    start_vectors: int = 16_384

    def phase(self, step: int, progress: float) -> Phase:
        """Say what is learned now."""
        if progress >= self.freeze:
            return Phase.DECODER
        return Phase.BYPASS if step < self.bypass_steps else Phase.WHOLE

    def factor(self, step: int, progress: float) -> float:
        """Give the part of the highest learning rate: a warm-up, and half a cosine a stretch."""
        warm = min(1.0, (step + 1) / self.warm_steps)
        if progress < self.freeze:
            return warm * _half_cosine(progress / self.freeze, 1.0, _FROZEN_RATE)
        part = (progress - self.freeze) / max(1e-9, 1.0 - self.freeze)
        return warm * _half_cosine(part, _ALONE_RATE, _LAST_RATE)

    def wave_part(self, progress: float) -> float:
        """Give the part of the share of compared waveforms that counts."""
        return max(0.0, 1.0 - progress / self.wave_until)

    def ramp(self, step: int) -> float:
        """Give the part of the discriminators' share that counts."""
        since = step - self.bypass_steps - self.alone_steps
        return min(1.0, max(0.0, since / self.ramp_steps))


class CodecTraining:
    """Networks, optimizers and batches; knows no clock."""

    def __init__(
        self,
        step: CodecStep,
        source: CropSource,
        groups: dict[Phase, list[Group]],
        schedule: Schedule,
        *,
        record: bool,
    ) -> None:
        """Make the optimizers; ``record`` runs steps as CUDA graphs."""
        self.model, self.source, self.schedule = step, source, schedule
        self.step, self.fixed, self._has_codebooks = 0, False, False
        self._groups = {phase: source.groups(*parts) for phase, parts in groups.items()}
        self._record = record
        device = step.mimi.device
        self._codec = _optimizer(list(step.learners(Phase.WHOLE)), schedule.rate, device)
        judges = list(step.discriminators.parameters())
        self._judges = _optimizer(judges, schedule.judge_rate, device) if judges else None
        self._phase: Phase | None = None
        self._replay: Replay | None = None

    def advance(self, progress: float) -> Phase:
        """Do one step at this part of the whole training; does not wait for the device."""
        phase = self.schedule.phase(self.step, progress)
        if phase is not self._phase:
            self._enter(phase)
        factor = self.schedule.factor(self.step, progress)
        _set_rate(self._codec, self.schedule.rate * factor)
        if self._judges is not None:
            _set_rate(self._judges, self.schedule.judge_rate * factor)
        self.model.ramp.fill_(self.schedule.ramp(self.step))
        self.model.wave_part.fill_(self.schedule.wave_part(progress))
        if self._replay is None:
            raise ValueError("no phase has been entered")
        self._replay(self.draw(phase))
        self.step += 1
        return phase

    def draw(self, phase: Phase) -> Crops:
        """Draw a batch as the phase wants it."""
        return self.source.draw(self._groups[phase])

    def readings(self) -> dict[str, float]:
        """Read what the last step measured; waits for the device."""
        return dict(zip(METRICS, self.model.metrics.tolist(), strict=True))

    def save(self, folder: Path, spent_s: float) -> None:
        """Write the product's file and all that a later command needs to go on."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.exported().save(folder / FILE_NAME)
        state: dict[str, Any] = {
            "step": self.step,
            "fixed": self.fixed,
            "spent_s": spent_s,
            "model": self.model.state_dict(),
            "codec": self._codec.state_dict(),
            "judges": None if self._judges is None else self._judges.state_dict(),
            "crops": self.source.generator.get_state(),
            "random": torch.get_rng_state(),
        }
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state()
        partial = folder / f"{STATE_NAME}.partial"
        torch.save(state, partial)
        partial.replace(folder / STATE_NAME)

    @torch.no_grad()
    def begin_with(self, mimi: Mimi) -> None:
        """Take a codec that was trained before, with its codebooks."""
        self.model.mimi.load_state_dict(mimi.state_dict())
        for name, parameter in self.model.mimi.decoder_parameters().items():
            self.model.mean[name.replace(".", "/")].copy_(parameter)
        self._has_codebooks = True

    def resume(self, folder: Path) -> float:
        """Read what an earlier command saved, if it did; give the seconds that it spent."""
        path = folder / STATE_NAME
        if not path.is_file():
            return 0.0
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        _load(self._codec, state["codec"])
        if self._judges is not None:
            _load(self._judges, state["judges"])
        self.step, self.fixed = int(state["step"]), bool(state["fixed"])
        self.source.generator.set_state(state["crops"])
        torch.set_rng_state(state["random"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
        return float(state["spent_s"])

    def _enter(self, phase: Phase) -> None:
        """Prepare a phase, unless a resumed training is in it already."""
        begins = self.step == self.schedule.bypass_steps
        if phase is Phase.WHOLE and begins and not self._has_codebooks:
            self._start_codebooks()
        if phase is Phase.DECODER and not self.fixed:
            self.model.fix_encoder()
            self.fixed = True

        def step(inputs: tuple[Tensor, ...]) -> None:
            self._codec.zero_grad(set_to_none=True)
            if self._judges is not None:
                self._judges.zero_grad(set_to_none=True)
            self.model.backward(Crops(*inputs), phase)
            self._codec.step()
            if self._judges is not None:
                self._judges.step()
            self.model.follow()

        self._replay, self._phase = Replay(step, record=self._record), phase

    @torch.no_grad()
    def _start_codebooks(self) -> None:
        vectors: list[Tensor] = []
        while sum(map(len, vectors)) < self.schedule.start_vectors:
            vectors.append(self.model.mimi.latent(self.draw(Phase.WHOLE).audio).flatten(0, 1))
        self.model.mimi.quantizer.start(torch.cat(vectors))


def _half_cosine(part: float, first: float, last: float) -> float:
    return last + (first - last) * (0.5 + 0.5 * math.cos(math.pi * min(part, 1.0)))


def _optimizer(
    parameters: list[torch.nn.Parameter], rate: float, device: torch.device
) -> torch.optim.AdamW:
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(
        parameters,
        torch.tensor(rate, device=device) if on_gpu else rate,
        betas=_BETAS,
        weight_decay=0.01,
        fused=True,
        capturable=on_gpu,
    )


def _load(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Read the moments; rates stay the tensors that a recorded step reads."""
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
