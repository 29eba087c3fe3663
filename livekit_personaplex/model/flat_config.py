"""Translates the reference's flat ``config.json`` into the fields of our configuration classes.

Small checkpoints are written with the reference's own argument names (``dim``, ``hidden_scale``,
``card``, ...). Only this module knows them.
"""

from typing import Any

from livekit_personaplex.errors import ConfigError

_TEMPORAL = {
    "dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "context": "context",
    "max_period": "rope_theta",
}
_DEPFORMER = {
    "dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "dep_q": "dep_q",
}
_MIMI = {
    "n_filters": "num_filters",
    "dimension": "hidden_size",
    "ratios": "ratios",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "dim_feedforward": "intermediate_size",
    "context": "context",
    "max_period": "rope_theta",
    "vq_dim": "codebook_dim",
    "bins": "codebook_size",
    "n_q": "num_codebooks",
    "sample_rate": "sample_rate",
    "frame_rate": "frame_rate",
}


def from_flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` with flat keys replaced by ours; everything else is kept as it is.

    Raises:
        ConfigError: A flat part is no JSON object or a size in it is no number.
    """
    values = dict(values)
    if "temporal" in values:
        flat = _section(values.pop("temporal"), "temporal")
        values["temporal_config"] = _transformer(flat, _TEMPORAL, "temporal")
    if "depformer" in values:
        flat = _section(values.pop("depformer"), "depformer")
        values["depformer_config"] = _transformer(flat, _DEPFORMER, "depformer")
    if "mimi" in values:
        values["mimi_config"] = _rename(_section(values.pop("mimi"), "mimi"), _MIMI)
    if "text_card" in values:
        text_card = _number(values.pop("text_card"), "text_card")
        values.update(text_vocab_size=text_card, text_embedding_rows=text_card + 1)
    if "card" in values:
        values["audio_vocab_size"] = values.pop("card")
    if "n_q" in values:
        values["num_audio_codebooks"] = values.pop("n_q")
    return values


def _transformer(flat: dict[str, Any], names: dict[str, str], part: str) -> dict[str, Any]:
    fields = _rename(flat, names)
    if "dim" in flat and "num_heads" in flat:
        width = _number(flat["dim"], f"{part}.dim")
        heads = _number(flat["num_heads"], f"{part}.num_heads")
        fields["head_dim"] = width // max(heads, 1)
    if "dim" in flat and "hidden_scale" in flat:
        scale = _number(flat["hidden_scale"], f"{part}.hidden_scale")
        fields["intermediate_size"] = _gated_size(int(scale * flat["dim"]), flat["dim"])
    if "dim" in flat and "dim_feedforward" in flat:
        size = _number(flat["dim_feedforward"], f"{part}.dim_feedforward")
        fields["intermediate_size"] = _gated_size(int(size), flat["dim"])
    return fields


def _gated_size(feedforward_size: int, width: int) -> int:
    """Give a gated network the parameters that a plain one of ``feedforward_size`` would have."""
    # Quirk: the reference rounds the case of exactly four times the width in another way.
    if feedforward_size == 4 * width:
        return 21 * width // 8
    return 2 * feedforward_size // 3


def _rename(flat: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {ours: flat[theirs] for theirs, ours in names.items() if theirs in flat}


def _section(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be a JSON object, got {type(value).__name__}")
    return value


def _number(value: Any, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, got {value!r}")
    return value
