"""Configuration: real defaults, the reference's flat file, save and load, refusal of bad values."""

import json
from pathlib import Path

import pytest

from livekit_personaplex.errors import CheckpointError, ConfigError
from livekit_personaplex.model.config import (
    HeliumConfig,
    PersonaPlexConfig,
    PersonaPlexDepformerConfig,
    PersonaPlexMimiConfig,
    load_config,
)

DATA = Path(__file__).parent / "data"


def write_config(folder: Path, values: object) -> Path:
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def flat_values() -> dict[str, object]:
    text = (DATA / "tiny8" / "checkpoint" / "config.json").read_text(encoding="utf-8")
    values: dict[str, object] = json.loads(text)
    return values


def test_flat_config_of_a_small_checkpoint_becomes_our_fields() -> None:
    config = load_config(DATA / "tiny8" / "checkpoint")
    temporal, depformer, mimi = (
        config.temporal_config,
        config.depformer_config,
        config.mimi_config,
    )
    assert (temporal.hidden_size, temporal.num_attention_heads, temporal.head_dim) == (32, 4, 8)
    assert (temporal.num_hidden_layers, temporal.context) == (2, 24)
    assert temporal.intermediate_size == 88
    assert (depformer.hidden_size, depformer.num_hidden_layers) == (16, 3)
    assert (depformer.intermediate_size, depformer.dep_q) == (44, 16)
    assert (mimi.hidden_size, mimi.context, mimi.codebook_dim) == (32, 16, 16)
    assert (mimi.num_codebooks, mimi.ratios) == (8, (8, 6, 5, 4))
    assert mimi.samples_per_frame == 1920
    assert (config.text_vocab_size, config.text_embedding_rows) == (400, 401)
    assert len(config.delays) == 17


def test_gated_sizes_follow_the_reference_rule(tmp_path: Path) -> None:
    values = flat_values()
    values["temporal"] = {"dim": 4096, "num_heads": 32, "hidden_scale": 4.125}
    values["depformer"] = {"dim": 64, "num_heads": 2, "dim_feedforward": 256}
    config = load_config(write_config(tmp_path, values))
    assert config.temporal_config.intermediate_size == HeliumConfig().intermediate_size
    assert config.depformer_config.intermediate_size == 21 * 64 // 8


@pytest.mark.parametrize("source", ["tiny8", "tiny16", "defaults"])
def test_saved_config_loads_unchanged(source: str, tmp_path: Path) -> None:
    config = PersonaPlexConfig()
    if source != "defaults":
        config = load_config(DATA / source / "checkpoint")
    config.save_pretrained(tmp_path)
    assert load_config(tmp_path) == config
    again = PersonaPlexConfig.from_pretrained(tmp_path)
    assert again == config
    again.save_pretrained(tmp_path / "twice")
    assert load_config(tmp_path / "twice") == config
    assert type(again.mimi_config) is PersonaPlexMimiConfig
    assert again.delays == config.delays
    assert again.mimi_config.ratios == config.mimi_config.ratios


def test_parts_are_saved_and_loaded_by_themselves(tmp_path: Path) -> None:
    config = load_config(DATA / "tiny16" / "checkpoint")
    config.save_pretrained(tmp_path)
    assert HeliumConfig.from_pretrained(tmp_path) == config.temporal_config
    assert PersonaPlexDepformerConfig.from_pretrained(tmp_path) == config.depformer_config
    assert PersonaPlexMimiConfig.from_pretrained(tmp_path) == config.mimi_config


def test_comparison_sees_every_size() -> None:
    tiny8 = load_config(DATA / "tiny8" / "checkpoint")
    tiny16 = load_config(DATA / "tiny16" / "checkpoint")
    assert tiny8 != tiny16
    assert HeliumConfig(context=10) != HeliumConfig(context=11)
    assert HeliumConfig() != PersonaPlexDepformerConfig()
    assert load_config(DATA / "tiny8" / "checkpoint") == tiny8


def test_bare_config_of_the_real_checkpoint_means_the_real_sizes(tmp_path: Path) -> None:
    values = {"model_type": "personaplex", "version": 1, "license": "x", "extra": {"a": [1]}}
    config = load_config(write_config(tmp_path, values))
    assert config.temporal_config == HeliumConfig()
    assert config.mimi_config == PersonaPlexMimiConfig()
    empty = tmp_path / "no_config"
    empty.mkdir()
    assert load_config(empty) == PersonaPlexConfig()


def test_text_config_is_the_temporal_transformer() -> None:
    config = PersonaPlexConfig()
    assert config.get_text_config(decoder=True) is config.temporal_config


@pytest.mark.parametrize(
    ("part", "field", "value", "says"),
    [
        ("temporal", "dim", "32", "temporal.dim"),
        ("temporal", "num_layers", 0, "num_hidden_layers"),
        ("temporal", "num_heads", 5, "head_dim"),
        ("temporal", "context", True, "context"),
        ("temporal", "max_period", -1, "rope_theta"),
        ("depformer", "dep_q", 12, "dep_q must be 8 or 16"),
        ("mimi", "n_q", 7, "num_codebooks"),
        ("mimi", "ratios", [8, 6, 5], "ratios"),
        ("mimi", "ratios", "8654", "ratios"),
        ("mimi", "sample_rate", 16000, "sample_rate"),
        ("mimi", "num_heads", 3, "heads"),
        ("mimi", "bins", 1024, "audio_vocab_size"),
    ],
)
def test_unusable_size_is_refused_by_name(
    part: str, field: str, value: object, says: str, tmp_path: Path
) -> None:
    values = flat_values()
    section = values[part]
    assert isinstance(section, dict)
    section[field] = value
    with pytest.raises(ConfigError, match=says):
        load_config(write_config(tmp_path, values))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delays", [0] * 16),
        ("delays", [0] * 16 + [2]),
        ("delays", None),
        ("n_q", 8),
        ("text_card", "many"),
        ("temporal", [1, 2]),
        ("mimi_config", "small"),
        ("text_embedding_rows", 5),
        ("mimi_name", "../secrets"),
        ("voices_name", ""),
    ],
)
def test_unusable_top_level_value_is_refused(field: str, value: object, tmp_path: Path) -> None:
    values = {**flat_values(), field: value}
    if field == "mimi_config":
        del values["mimi"]
    if field == "text_embedding_rows":
        del values["text_card"]
    with pytest.raises(ConfigError):
        load_config(write_config(tmp_path, values))


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "\xff", "[" * 100_000], ids=range(5))
def test_file_that_is_no_json_object_is_a_checkpoint_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_config(tmp_path)


def test_missing_folder_and_another_model_are_checkpoint_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        load_config(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="llama"):
        load_config(write_config(tmp_path, {"model_type": "llama"}))
