"""One step of the codec's training, without waiting for the device.

Losses on the sound are given fixed shares of the gradient at the waveform, and sound, phonemes,
pitch and commitment fixed shares at the quantised vectors: their plain sizes differ a
thousandfold, and the largest alone would be learned.

Legend: B clips, F frames, N = 1920 F samples, E width.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from examples.demo_model.codec.batches import Crops
from examples.demo_model.codec.discriminators import Discriminators
from examples.demo_model.codec.heads import SlotHead
from examples.demo_model.codec.mel import SpectralDistance
from examples.demo_model.codec.mimi import Mimi
from examples.demo_model.codec.pitch import CLASSES, pitch_classes
from examples.demo_model.sizes import MimiSizes
from examples.demo_model.speech.utterance import PHONEMES
from livekit_personaplex.audio import FRAME_SAMPLES

METRICS = ("mel", "mel_caller", "wave", "judged", "features", "told") + (
    "phonemes_first",
    "phonemes_all",
    "pitch",
    "commitment",
    "largest_gradient",
)


_BYPASS_SHARE = 0.05
"""Of the gradient that keeps vectors small while they are not quantised."""
_WIND_UP = 10.0
"""How the share of commitment grows when codebooks fall behind: else vectors run away from them."""
_REMEMBERED = 48_000
"""Vectors that codebooks are means of, in whatever batches they come."""
_RENEWED_EVERY = 9_600
"""Vectors, on average, until unused entries are placed anew."""


class Phase(Enum):
    """What is learned: all without quantising, all, or the decoder on codes that stay."""

    BYPASS = "bypass"
    WHOLE = "whole"
    DECODER = "decoder"


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the gradient; the first three at the waveform, the others at the vectors."""

    mel: float = 1.0
    wave: float = 1.0
    judged: float = 2.0
    caller_mel: float = 0.3
    phonemes_first: float = 1.0
    phonemes_all: float = 0.5
    pitch: float = 0.2
    commitment: float = 0.25


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What a step does.

    Attributes:
        agents: The first rows of a batch, which are agents'; in the last phase all are.
        judged: The first rows that the discriminators see.
        judged_frames: How many frames of them, from the third on.
        shares: Of the gradient.
        bfloat16: Compute networks in bfloat16.
        decay: Of the decoder's moving average.
        dropped: Part of the clips that lose their last codebooks.
    """

    agents: int
    judged: int
    judged_frames: int
    shares: Shares
    bfloat16: bool
    decay: float = 0.999
    dropped: float = 0.1


class CodecStep(nn.Module):
    """All networks of the codec's training and their losses; optimizers are outside."""

    norms: Tensor
    metrics: Tensor
    silence: Tensor
    ramp: Tensor
    wave_part: Tensor

    def __init__(
        self, sizes: MimiSizes, options: StepOptions, discriminators: Discriminators
    ) -> None:
        """Draw all weights; set the seed before."""
        super().__init__()
        self.options = options
        self.mimi = Mimi(sizes)
        self.heads = nn.ModuleDict(
            {
                "phonemes_first": SlotHead(sizes.width, PHONEMES),
                "phonemes_all": SlotHead(sizes.width, PHONEMES),
                "pitch": SlotHead(sizes.width, CLASSES),
            }
        )
        self.distance = SpectralDistance()
        self.discriminators = discriminators
        self.mean = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(p.detach().clone(), requires_grad=False)
                for name, p in self.mimi.decoder_parameters().items()
            }
        )
        self.register_buffer("norms", torch.zeros(len(METRICS)))
        self.register_buffer("metrics", torch.zeros(len(METRICS)))
        self.register_buffer("silence", torch.zeros(sizes.num_codebooks, dtype=torch.long))
        self.register_buffer("ramp", torch.zeros(()))
        self.register_buffer("wave_part", torch.ones(()))
        self.heads.to(torch.float32)

    def learners(self, phase: Phase) -> Iterable[nn.Parameter]:
        """Parameters that a phase changes, discriminators aside."""
        yield from self.mimi.decoder_parameters().values()
        if phase is not Phase.DECODER:
            yield from self.mimi.encoder_parameters().values()
            yield from self.heads.parameters()

    def backward(self, crops: Crops, phase: Phase) -> None:
        """Compute all gradients (set to None before) and let the codebooks follow.

        Args:
            crops: The batch.
            phase: What is learned.
        """
        if phase is Phase.DECODER:
            self._decode_fixed(crops)
            return
        shares = self.options.shares
        with self._autocast():
            latent = self.mimi.latent(crops.audio)
        z = latent.detach().requires_grad_()
        first, total, commitment, lag = self._quantise(z, phase)
        vectors, of_first, of_total = (t.detach().requires_grad_() for t in (total, first, total))
        self._sound(crops, vectors, self.options.agents, judged=phase is Phase.WHOLE)
        self._read(crops, of_first, of_total)
        (of_commitment,) = torch.autograd.grad(commitment, z, retain_graph=True)
        share = _BYPASS_SHARE if phase is Phase.BYPASS else shares.commitment
        scale = share * (1 + _WIND_UP * lag.square()) / of_commitment.norm().clamp(min=1e-12)
        self._note("commitment", commitment)
        torch.autograd.backward(
            (total, first, commitment),
            (_grad(vectors) + _grad(of_total), _grad(of_first), scale),
        )
        latent.backward(self._bounded("largest_gradient", _grad(z)))

    @torch.no_grad()
    def follow(self) -> None:
        """Move the decoder's mean towards its weights."""
        weights = self.mimi.decoder_parameters()
        means = [self.mean[name.replace(".", "/")] for name in weights]
        torch._foreach_lerp_(means, list(weights.values()), 1 - self.options.decay)

    @torch.no_grad()
    def exported(self) -> Mimi:
        """Give a copy of the codec whose decoder is the mean; the encoder is as it is."""
        mimi = Mimi(self.mimi.sizes).to(self.mimi.device)
        mimi.load_state_dict(self.mimi.state_dict())
        for name, parameter in mimi.decoder_parameters().items():
            parameter.copy_(self.mean[name.replace(".", "/")])
        return mimi

    @torch.no_grad()
    def fix_encoder(self) -> None:
        """End the encoder's training; codes stay from here on."""
        self.mimi.fix_encoder()
        quiet = torch.zeros(1, 1, 64 * FRAME_SAMPLES, device=self.mimi.device)
        self.silence.copy_(self.mimi.encode(quiet)[0, :, 32:].mode(dim=1).values)

    def _autocast(self) -> torch.autocast:
        device = self.mimi.device.type
        return torch.autocast(
            device, torch.bfloat16, enabled=self.options.bfloat16, cache_enabled=False
        )

    def _quantise(self, z: Tensor, phase: Phase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give both vectors, the commitment, and how far the codebooks are behind (0 to 1)."""
        quantizer = self.mimi.quantizer
        if phase is Phase.BYPASS:
            first, total = quantizer.bypass(z)
            return first, total, z.square().mean() * 0.01, torch.zeros_like(self.ramp)
        books = self.mimi.sizes.num_codebooks
        kept = (torch.rand(len(z), device=z.device) * books).long()
        dropped = torch.rand(len(z), device=z.device) < self.options.dropped
        seen = quantizer(z, kept.masked_fill(~dropped, books))
        vectors = z.shape[0] * z.shape[1]
        renew = torch.rand((), device=z.device) < vectors / _RENEWED_EVERY
        quantizer.follow(seen, 1 - vectors / _REMEMBERED, renew)
        spread = seen.residuals[:2].var(dim=1).mean()
        lag = (seen.commitment.detach() / spread.clamp(min=1e-9)).clamp(max=1.0)
        return seen.first, seen.total, seen.commitment, lag

    def _decode_fixed(self, crops: Crops) -> None:
        """Learn to decode codes as a call has them: a barge-in is followed by silence codes."""
        with torch.no_grad():
            codes = self.mimi.encode(crops.audio.unsqueeze(1))
            frame = torch.arange(codes.shape[2], device=codes.device)
            cut = (frame >= crops.cut[:, :1]) & (frame < crops.cut[:, 1:])
            codes = torch.where(cut.unsqueeze(1), self.silence[:, None], codes)
        total = self.mimi.quantizer.decode(codes)
        vectors = total.detach().requires_grad_()
        self._sound(crops, vectors, len(codes), judged=True)
        total.backward(_grad(vectors))

    def _sound(self, crops: Crops, vectors: Tensor, num_agents: int, *, judged: bool) -> None:
        """Put gradients into the decoder, the discriminators and ``vectors``."""
        options, shares = self.options, self.options.shares
        with self._autocast():
            wave = self.mimi.wave(vectors)
        copy = wave.detach().requires_grad_()
        apart = self.distance(crops.audio, copy)
        agents, callers = apart.mel[:num_agents], apart.mel[num_agents:]
        agent_wave = apart.wave[:num_agents].mean()
        mel = agents.mean()
        if len(callers):
            self._note("mel_caller", callers.mean())
            mel = mel + shares.caller_mel * callers.mean()
        parts: list[tuple[str, Tensor, float | Tensor]] = [
            ("mel", mel, shares.mel),
            ("wave", agent_wave, shares.wave * self.wave_part),
        ]
        if judged and len(self.discriminators.all):
            window = slice(2 * FRAME_SAMPLES, (2 + options.judged_frames) * FRAME_SAMPLES)
            rows = slice(options.judged)
            with self._autocast():
                verdict = self.discriminators(crops.audio[rows, window], copy[rows, window])
            learners = list(self.discriminators.parameters())
            verdict.discriminator.backward(retain_graph=True, inputs=learners)
            self._note("told", verdict.accuracy)
            self._note("features", verdict.features)
            parts.append(("judged", verdict.codec, shares.judged * self.ramp))
        pull = torch.zeros_like(copy)
        for name, loss, share in parts:
            self._note(name, loss)
            (grad,) = torch.autograd.grad(loss, copy, retain_graph=True)
            pull = pull + share * self._bounded(name, grad)
        self._note("mel", agents.mean())
        wave.backward(pull)
        vectors.grad = _grad(vectors) / _grad(vectors).norm().clamp(min=1e-12)

    def _read(self, crops: Crops, first: Tensor, total: Tensor) -> None:
        """Put the heads' gradients into themselves and, by their shares, into the vectors."""
        shares = self.options.shares
        pitch = pitch_classes(crops.audio)
        pitch[self.options.agents :] = -1
        for name, vectors, labels, share in (
            ("phonemes_first", first, crops.labels, shares.phonemes_first),
            ("phonemes_all", total, crops.labels, shares.phonemes_all),
            ("pitch", total, pitch, shares.pitch),
        ):
            with self._autocast():
                reading = self.heads[name](vectors, labels)
            self._note(name, reading.accuracy)
            before = vectors.grad
            vectors.grad = None
            reading.loss.backward()
            own = _grad(vectors)
            own = share * own / own.norm().clamp(min=1e-12)
            vectors.grad = own if before is None else before + own

    def _bounded(self, name: str, grad: Tensor) -> Tensor:
        """Scale a gradient by its usual norm, and a larger one by its own."""
        index = METRICS.index(name)
        norm = grad.norm()
        usual = self.norms[index]
        usual = torch.where(usual == 0, norm, 0.99 * usual + 0.01 * norm)
        self.norms[index] = usual
        return grad / torch.maximum(usual, norm).clamp(min=1e-12)

    def _note(self, name: str, value: Tensor) -> None:
        self.metrics[METRICS.index(name)] = value.detach().float()


def _grad(tensor: Tensor) -> Tensor:
    grad = tensor.grad
    if grad is None:
        raise ValueError("expected a gradient; backward has not been run")
    return grad
