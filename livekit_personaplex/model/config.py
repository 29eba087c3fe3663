"""Sizes and file names of a checkpoint, as ``transformers`` configuration classes.

The defaults are the real model's, because its ``config.json`` carries no sizes. Small checkpoints
carry theirs in the flat layout of the reference (``temporal``, ``depformer``, ``mimi``,
``text_card``, ...), which :mod:`livekit_personaplex.model.flat_config` translates. Whether the
sizes agree with the tensors is found out by :mod:`livekit_personaplex.model.weights`.

Every class here is plain data: no tensors, no device. ``==`` compares all values, which the
inherited comparison of newer ``transformers`` does not.
"""

import json
from pathlib import Path
from typing import Any, ClassVar

from transformers import PretrainedConfig

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_CODEBOOKS, SAMPLE_RATE_HZ
from livekit_personaplex.errors import CheckpointError, ConfigError
from livekit_personaplex.model.flat_config import from_flat

CONFIG_NAME = "config.json"
_DELAYS = (0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1)
_BOOKKEEPING = ("transformers_version", "_name_or_path")


def _equal(self: PretrainedConfig, other: object) -> bool:
    """Compare every value except where the configuration came from."""
    if type(other) is not type(self):
        return False
    mine, theirs = self.to_dict(), other.to_dict()
    for key in _BOOKKEEPING:
        mine.pop(key, None)
        theirs.pop(key, None)
    return bool(mine == theirs)


class HeliumConfig(PretrainedConfig):
    """The temporal transformer: one position for each frame."""

    model_type = "personaplex_helium"
    base_config_key = "temporal_config"
    __eq__ = _equal

    def __init__(
        self,
        hidden_size: int = 4096,
        num_hidden_layers: int = 32,
        num_attention_heads: int = 32,
        head_dim: int = 128,
        intermediate_size: int = 11264,
        context: int = 3000,
        rope_theta: float = 10000.0,
        rms_norm_eps: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        """Hold the sizes; ``context`` is the ring of past positions, in steps."""
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.intermediate_size = intermediate_size
        self.context = context
        self.rope_theta = rope_theta
        self.rms_norm_eps = rms_norm_eps
        _require_sizes(self, _TRANSFORMER_SIZES + ("context",))
        _require_positive(self, ("rope_theta", "rms_norm_eps"))
        _require_heads(self)
        super().__init__(**kwargs)


class PersonaPlexDepformerConfig(PretrainedConfig):
    """The depth transformer: the codebooks of one frame, one inner step each."""

    model_type = "personaplex_depformer"
    base_config_key = "depformer_config"
    __eq__ = _equal

    def __init__(
        self,
        hidden_size: int = 1024,
        num_hidden_layers: int = 6,
        num_attention_heads: int = 16,
        head_dim: int = 64,
        intermediate_size: int = 2816,
        dep_q: int = 16,
        num_active_codebooks: int = NUM_CODEBOOKS,
        rms_norm_eps: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        """Hold the sizes; of the ``dep_q`` inner steps only the first eight are ever run."""
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.intermediate_size = intermediate_size
        self.dep_q = dep_q
        self.num_active_codebooks = num_active_codebooks
        self.rms_norm_eps = rms_norm_eps
        _require_sizes(self, _TRANSFORMER_SIZES)
        _require_positive(self, ("rms_norm_eps",))
        _require_heads(self)
        if dep_q not in (NUM_CODEBOOKS, 2 * NUM_CODEBOOKS):
            raise ConfigError(f"depformer dep_q must be 8 or 16, got {dep_q!r}")
        _require_equal("depformer num_active_codebooks", num_active_codebooks, NUM_CODEBOOKS)
        super().__init__(**kwargs)


class PersonaPlexMimiConfig(PretrainedConfig):
    """The audio codec: 1,920 samples to 8 codes and back, 12.5 times a second."""

    model_type = "personaplex_mimi"
    base_config_key = "mimi_config"
    __eq__ = _equal

    def __init__(
        self,
        num_filters: int = 64,
        hidden_size: int = 512,
        ratios: tuple[int, ...] = (8, 6, 5, 4),
        num_hidden_layers: int = 8,
        num_attention_heads: int = 8,
        intermediate_size: int = 2048,
        context: int = 250,
        rope_theta: float = 10000.0,
        norm_eps: float = 1e-5,
        codebook_dim: int = 256,
        codebook_size: int = 2048,
        num_codebooks: int = 32,
        num_active_codebooks: int = NUM_CODEBOOKS,
        sample_rate: int = SAMPLE_RATE_HZ,
        frame_rate: float = 12.5,
        **kwargs: Any,
    ) -> None:
        """Hold the sizes; ``ratios`` in the decoder's order, ``context`` in 40 ms positions."""
        self.num_filters = num_filters
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.context = context
        self.rope_theta = rope_theta
        self.norm_eps = norm_eps
        self.codebook_dim = codebook_dim
        self.codebook_size = codebook_size
        self.num_codebooks = num_codebooks
        self.num_active_codebooks = num_active_codebooks
        self.sample_rate = sample_rate
        self.frame_rate = frame_rate
        self.ratios = _int_tuple(ratios, "mimi ratios")
        self._validate()
        for derived in ("head_dim", "samples_per_frame"):
            kwargs.pop(derived, None)
        super().__init__(**kwargs)

    def _validate(self) -> None:
        _require_sizes(
            self,
            ("num_filters", "num_hidden_layers", "num_attention_heads", "intermediate_size")
            + ("context", "codebook_dim", "codebook_size", "num_codebooks", "hidden_size"),
        )
        _require_positive(self, ("rope_theta", "norm_eps"))
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ConfigError(
                f"mimi hidden_size {self.hidden_size} must split into {self.num_attention_heads} "
                "heads of an even size"
            )
        if self.num_codebooks < NUM_CODEBOOKS:
            raise ConfigError(f"mimi num_codebooks must be 8 or more, got {self.num_codebooks}")
        _require_equal("mimi num_active_codebooks", self.num_active_codebooks, NUM_CODEBOOKS)
        _require_equal("mimi sample_rate", self.sample_rate, SAMPLE_RATE_HZ)
        _require_equal("mimi frame_rate", self.frame_rate, SAMPLE_RATE_HZ / FRAME_SAMPLES)
        hop_samples = 1
        for ratio in self.ratios:
            hop_samples *= ratio
        _require_equal("the product of mimi ratios", hop_samples, FRAME_SAMPLES // 2)

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def samples_per_frame(self) -> int:
        """PCM samples of one frame: 1,920, or 80 ms."""
        return int(self.sample_rate / self.frame_rate)


class PersonaPlexConfig(PretrainedConfig):
    """A whole checkpoint: the three networks, the vocabularies, the delays and the file names."""

    model_type = "personaplex"
    sub_configs: ClassVar[dict[str, type[PretrainedConfig]]] = {
        "temporal_config": HeliumConfig,
        "depformer_config": PersonaPlexDepformerConfig,
        "mimi_config": PersonaPlexMimiConfig,
    }
    __eq__ = _equal

    def __init__(
        self,
        temporal_config: HeliumConfig | dict[str, Any] | None = None,
        depformer_config: PersonaPlexDepformerConfig | dict[str, Any] | None = None,
        mimi_config: PersonaPlexMimiConfig | dict[str, Any] | None = None,
        text_vocab_size: int = 32000,
        text_embedding_rows: int = 32001,
        audio_vocab_size: int = 2048,
        num_audio_codebooks: int = 2 * NUM_CODEBOOKS,
        delays: tuple[int, ...] = _DELAYS,
        sample_rate: int = SAMPLE_RATE_HZ,
        model_name: str = "model.safetensors",
        mimi_name: str = "tokenizer-e351c8d8-checkpoint125.safetensors",
        tokenizer_name: str = "tokenizer_spm_32k_3.model",
        voices_name: str = "voices.tgz",
        **kwargs: Any,
    ) -> None:
        """Hold the values; parts may be given as dicts of their own fields."""
        self.temporal_config: HeliumConfig = _part(HeliumConfig, temporal_config)
        self.depformer_config: PersonaPlexDepformerConfig = _part(
            PersonaPlexDepformerConfig, depformer_config
        )
        self.mimi_config: PersonaPlexMimiConfig = _part(PersonaPlexMimiConfig, mimi_config)
        self.text_vocab_size = text_vocab_size
        self.text_embedding_rows = text_embedding_rows
        self.audio_vocab_size = audio_vocab_size
        self.num_audio_codebooks = num_audio_codebooks
        self.delays = _int_tuple(delays, "delays")
        self.sample_rate = sample_rate
        self.model_name = model_name
        self.mimi_name = mimi_name
        self.tokenizer_name = tokenizer_name
        self.voices_name = voices_name
        self._validate()
        super().__init__(**kwargs)

    def _validate(self) -> None:
        _require_sizes(self, ("text_vocab_size", "text_embedding_rows", "audio_vocab_size"))
        _require_equal("text_embedding_rows", self.text_embedding_rows, self.text_vocab_size + 1)
        _require_equal("audio_vocab_size", self.audio_vocab_size, self.mimi_config.codebook_size)
        _require_equal("num_audio_codebooks", self.num_audio_codebooks, 2 * NUM_CODEBOOKS)
        _require_equal("sample_rate", self.sample_rate, self.mimi_config.sample_rate)
        if len(self.delays) != 1 + self.num_audio_codebooks or not set(self.delays) <= {0, 1}:
            raise ConfigError(f"delays must be 17 numbers, each 0 or 1, got {list(self.delays)}")
        for field in ("model_name", "mimi_name", "tokenizer_name", "voices_name"):
            name = getattr(self, field)
            if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
                raise ConfigError(f"{field} must be a plain file name, got {name!r}")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build from a parsed ``config.json``, nested (ours), flat (the reference's) or bare."""
        return super().from_dict(from_flat(config_dict), **kwargs)

    def get_text_config(self, *args: Any, **kwargs: Any) -> HeliumConfig:
        """Return the part that ``transformers`` calls the text model: the temporal transformer."""
        return self.temporal_config


def load_config(folder: Path | str) -> PersonaPlexConfig:
    """Read ``config.json`` of a model folder; without that file the real model's sizes hold.

    Raises:
        CheckpointError: The folder does not exist or the file is no JSON object.
        ConfigError: A value cannot be used.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"expected a model folder at {folder}, found none; check the path")
    path = folder / CONFIG_NAME
    if not path.is_file():
        return PersonaPlexConfig()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(values).__name__}")
    model_type = values.get("model_type", PersonaPlexConfig.model_type)
    if model_type != PersonaPlexConfig.model_type:
        raise CheckpointError(
            f"{path} says model_type {model_type!r}, expected 'personaplex'; is this a PersonaPlex "
            "checkpoint?"
        )
    config: PersonaPlexConfig = PersonaPlexConfig.from_dict(values)
    return config


_TRANSFORMER_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "intermediate_size",
)


def _part(cls: type[Any], value: Any) -> Any:
    if isinstance(value, cls):
        return value
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"expected {cls.__name__} or a dict, got {type(value).__name__}")
    return cls(**(value or {}))


def _require_sizes(config: PretrainedConfig, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{type(config).__name__}.{field} must be a positive whole number, got {value!r}"
            )


def _require_positive(config: PretrainedConfig, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = getattr(config, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ConfigError(
                f"{type(config).__name__}.{field} must be a positive number, got {value!r}"
            )


def _require_heads(config: HeliumConfig | PersonaPlexDepformerConfig) -> None:
    width, heads, head_dim = config.hidden_size, config.num_attention_heads, config.head_dim
    if heads * head_dim != width or head_dim % 2:
        raise ConfigError(
            f"{type(config).__name__}: hidden_size {width} must be num_attention_heads {heads} "
            f"times an even head_dim, got head_dim {head_dim}"
        )


def _require_equal(what: str, value: object, expected: object) -> None:
    if value != expected:
        raise ConfigError(f"{what} must be {expected}, got {value!r}")


def _int_tuple(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or any(type(value) is not int for value in values):
        raise ConfigError(f"{what} must be a list of whole numbers, got {values!r}")
    if any(value < 0 for value in values):
        raise ConfigError(f"{what} must not be negative, got {list(values)}")
    return tuple(values)
