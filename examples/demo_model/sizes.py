"""Sizes of the small model, and the ``config.json`` that says them to the product.

Width is dear (17 tables of tokens grow with it) and depth is cheap, so the temporal transformer is
narrow and deep.
"""

import math
from dataclasses import dataclass, field

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.lm_weights import lm_tensor_shapes
from livekit_personaplex.model.mimi_names import mimi_tensor_shapes

CARD = 2048
NUM_STEPS = 8
"""Inner steps of the depformer that are trained and stored."""
DELAYS = tuple(PersonaPlexConfig().delays)
_BFLOAT16_BYTES = 2
_HIDDEN_SCALE = 4.125


@dataclass(frozen=True, slots=True)
class MimiSizes:
    """The codec: filters of its first layer, width and window of its transformers."""

    num_filters: int = 24
    width: int = 192
    heads: int = 4
    layers: int = 2
    hidden: int = 768
    context: int = 32
    vq_dim: int = 64
    num_codebooks: int = 8


@dataclass(frozen=True, slots=True)
class TemporalSizes:
    """The temporal transformer; ``context`` is its window in frames."""

    width: int = 192
    heads: int = 6
    layers: int = 11
    context: int = 3000

    @property
    def hidden(self) -> int:
        """Width of the gated layers, as the product reads it off ``config.json``."""
        return _gated(self.width)


@dataclass(frozen=True, slots=True)
class DepformerSizes:
    """The transformer inside a frame."""

    width: int = 96
    heads: int = 3
    layers: int = 2

    @property
    def hidden(self) -> int:
        """Width of the gated layers, as the product reads it off ``config.json``."""
        return _gated(self.width)


@dataclass(frozen=True, slots=True)
class Sizes:
    """All sizes of a checkpoint."""

    mimi: MimiSizes = field(default_factory=MimiSizes)
    temporal: TemporalSizes = field(default_factory=TemporalSizes)
    depformer: DepformerSizes = field(default_factory=DepformerSizes)
    text_card: int = 1100


SIZES = {
    "small": Sizes(),
    "wide": Sizes(
        temporal=TemporalSizes(width=256, heads=8, layers=6),
        depformer=DepformerSizes(width=64, heads=2, layers=2),
    ),
    "tiny": Sizes(
        mimi=MimiSizes(num_filters=4, width=16, heads=2, layers=1, hidden=32, context=16, vq_dim=8),
        temporal=TemporalSizes(width=32, heads=2, layers=4, context=3000),
        depformer=DepformerSizes(width=16, heads=2, layers=1),
    ),
}
"""By name. ``small`` and ``wide`` are the same number of bytes; ``tiny`` is for tests."""


def config_json(sizes: Sizes) -> dict[str, object]:
    """Give the content of the checkpoint's ``config.json``."""
    mimi, temporal, depformer = sizes.mimi, sizes.temporal, sizes.depformer
    return {
        "model_type": "personaplex",
        "temporal": {
            "dim": temporal.width,
            "num_heads": temporal.heads,
            "num_layers": temporal.layers,
            "context": temporal.context,
            "hidden_scale": _HIDDEN_SCALE,
            "max_period": 10000,
        },
        "depformer": {
            "dim": depformer.width,
            "num_heads": depformer.heads,
            "num_layers": depformer.layers,
            "dim_feedforward": int(_HIDDEN_SCALE * depformer.width),
            "dep_q": 2 * NUM_STEPS,
        },
        "text_card": sizes.text_card,
        "card": CARD,
        "n_q": 2 * NUM_STEPS,
        "delays": list(DELAYS),
        "mimi": {
            "n_filters": mimi.num_filters,
            "dimension": mimi.width,
            "ratios": [8, 6, 5, 4],
            "num_heads": mimi.heads,
            "num_layers": mimi.layers,
            "context": mimi.context,
            "dim_feedforward": mimi.hidden,
            "vq_dim": mimi.vq_dim,
            "n_q": mimi.num_codebooks,
            "bins": CARD,
            "sample_rate": SAMPLE_RATE_HZ,
            "frame_rate": 12.5,
        },
    }


def product_config(sizes: Sizes) -> PersonaPlexConfig:
    """Read the sizes as the product does."""
    config: PersonaPlexConfig = PersonaPlexConfig.from_dict(config_json(sizes))
    return config


def checkpoint_bytes(sizes: Sizes) -> int:
    """Bytes of both weight files in bfloat16; tokenizer and voices add about half a megabyte."""
    config = product_config(sizes)
    shapes = list(lm_tensor_shapes(config, stored_steps=NUM_STEPS).values())
    shapes += mimi_tensor_shapes(config.mimi_config).values()
    return _BFLOAT16_BYTES * sum(math.prod(shape) for shape in shapes)


def _gated(width: int) -> int:
    return 2 * int(_HIDDEN_SCALE * width) // 3
