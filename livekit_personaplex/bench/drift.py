"""What lower precision costs: logits of the fast path against plain float32, teacher-forced.

Both models have the same weights (rounded to the fast dtype, then widened) and the same full rings
past the window, and step through the same tokens: those the fast one draws. Free-running tokens
say nothing here, since one changed draw changes everything after it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from livekit_personaplex.audio import NUM_TOKEN_ROWS
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.lm import LanguageModel, StepOutput
from livekit_personaplex.model.lm_state import RING_COLUMNS, LmState
from livekit_personaplex.model.lm_weights import load_language_model
from livekit_personaplex.model.weights import Shape, TensorSource
from livekit_personaplex.sampling import Sampling


@dataclass(frozen=True, slots=True)
class DriftFigures:
    """Difference of one kind of logits.

    Attributes:
        kv: Dtype of the fast path's keys and values.
        head: ``text`` or ``audio``.
        mean_abs: Mean absolute difference.
        max_abs: Largest absolute difference.
        spread: Standard deviation of the float32 logits, to compare with.
        top1_agreement: Share of draws whose likeliest token is the same.
        num_draws: Draws compared.
    """

    kv: str
    head: str
    mean_abs: float
    max_abs: float
    spread: float
    top1_agreement: float
    num_draws: int

    def as_json(self) -> dict[str, float | int | str]:
        """Give the figures as the results file keeps them."""
        return asdict(self)


class WidenedSource:
    """Tensors of another source, rounded to a dtype before they become what is asked for."""

    def __init__(
        self, source: TensorSource, *, rounded_to: torch.dtype, made_on: torch.device
    ) -> None:
        """Wrap a source; tensors are made on ``made_on`` and moved."""
        self._source, self._dtype, self._device = source, rounded_to, made_on
        self.names = source.names

    def check(
        self, expected: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None
    ) -> None:
        """Check the source."""
        self._source.check(expected, optional)

    def read(self, name: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Read, round, move, widen."""
        return self._source.read(name, self._device, self._dtype).to(device).to(dtype)


def measure_drift(
    config: PersonaPlexConfig,
    source: TensorSource,
    *,
    device: torch.device,
    kv_dtypes: list[torch.dtype],
    num_steps: int,
) -> list[DriftFigures]:
    """Compare the fast path on ``device`` with plain float32 on the CPU.

    Args:
        config: Sizes.
        source: Weights.
        device: Of the fast path, whose dtype is bfloat16.
        kv_dtypes: Dtypes of keys and values to try.
        num_steps: Steps of each; every one is a text draw and eight audio draws.
    """
    cpu = torch.device("cpu")
    with torch.inference_mode():
        plain = load_language_model(
            config,
            WidenedSource(source, rounded_to=torch.bfloat16, made_on=device),
            device=cpu,
            dtype=torch.float32,
        )
        fast = load_language_model(config, source, device=device, dtype=torch.bfloat16)
        figures = []
        for kv_dtype in kv_dtypes:
            figures += _compare(config, fast, plain, kv_dtype, num_steps)
        return figures


def _compare(
    config: PersonaPlexConfig,
    fast: LanguageModel,
    plain: LanguageModel,
    kv_dtype: torch.dtype,
    num_steps: int,
) -> list[DriftFigures]:
    fast_state = _full_state(config, fast.embeddings.device, kv_dtype)
    plain_state = _full_state(config, plain.embeddings.device, torch.float32)
    _copy_rings(fast_state.rings, plain_state.rings)
    generator = torch.Generator().manual_seed(0)
    text: list[tuple[torch.Tensor, torch.Tensor]] = []
    audio: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(num_steps):
        codes = torch.randint(0, config.audio_vocab_size, (1, 8), generator=generator)
        ours = _step(fast, fast_state, codes)
        _force(plain_state, fast_state)
        theirs = _step(plain, plain_state, codes)
        text.append((ours.text_logits, theirs.text_logits))
        audio += zip(ours.audio_logits, theirs.audio_logits, strict=True)
    name = "fp8" if kv_dtype == FP8 else "bf16"
    return [_figures(name, "text", text), _figures(name, "audio", audio)]


def _full_state(config: PersonaPlexConfig, device: torch.device, dtype: torch.dtype) -> LmState:
    context = config.temporal_config.context
    state = LmState.create(config, num_slots=1, capacity=context, device=device, kv_dtype=dtype)
    start = 2 * context
    tokens = torch.randint(
        4, 2000, (len(config.delays), RING_COLUMNS), generator=torch.Generator().manual_seed(1)
    )
    state.begin(
        0,
        offset=start,
        tokens=tokens.numpy(),
        provided=torch.zeros_like(tokens, dtype=torch.bool).numpy(),
        sampling=Sampling(seed=3),
    )
    return state


def _copy_rings(fast: KvRings, plain: KvRings) -> None:
    """Fill the plain rings with noise and the fast ones with the same, as they would store it."""
    for target, scales, source in (
        (fast.keys, fast.key_scales, plain.keys),
        (fast.values, fast.value_scales, plain.values),
    ):
        source.normal_(generator=torch.Generator().manual_seed(2))
        source.copy_(source.to(torch.bfloat16))
        if scales is None:
            target.copy_(source)
        else:
            scale = source.abs().amax(dim=-1) / 448.0
            raw = (source / scale.unsqueeze(-1)).to(FP8).view(torch.uint8)
            target.view(torch.uint8).copy_(raw)
            scales.copy_(scale)


def _step(model: LanguageModel, state: LmState, codes: torch.Tensor) -> StepOutput:
    device = model.embeddings.device
    live = torch.ones(1, dtype=torch.bool, device=device)
    return model.step(state, user_codes=codes.to(device), has_user=live, exec_mask=live)


def _force(plain: LmState, fast: LmState) -> None:
    """Make the plain model's next step take the tokens that the fast one just drew."""
    column = int(plain.offsets[0]) % RING_COLUMNS
    drawn = fast.tokens[0, :NUM_TOKEN_ROWS, column].to(plain.tokens.device)
    plain.tokens[0, :NUM_TOKEN_ROWS, column] = drawn
    plain.provided[0, :NUM_TOKEN_ROWS, column] = True


def _figures(kv: str, head: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> DriftFigures:
    ours = torch.cat([pair[0].float().cpu() for pair in pairs])
    theirs = torch.cat([pair[1].float().cpu() for pair in pairs])
    difference = (ours - theirs).abs()
    agreement = (ours.argmax(dim=1) == theirs.argmax(dim=1)).float().mean()
    return DriftFigures(
        kv=kv,
        head=head,
        mean_abs=round(float(difference.mean()), 5),
        max_abs=round(float(difference.max()), 5),
        spread=round(float(theirs.std()), 3),
        top1_agreement=round(float(agreement), 4),
        num_draws=len(ours),
    )
