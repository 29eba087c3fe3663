"""The tensors of a Mimi file: their names, old and new, and the shapes that sizes ask for."""

from livekit_personaplex.model.config import PersonaPlexMimiConfig
from livekit_personaplex.model.weights import Shape

FRAME_STRIDE = 2
"""Vectors of the transformers that make one frame."""
_KERNEL, _LAST_KERNEL, _RESIDUAL_KERNEL = 7, 3, 3
_OLD_CODEBOOK_NAMES = {
    "embedding_sum": ("embed_sum", "embed_avg"),
    "cluster_usage": ("cluster_size",),
    "_initialized": ("inited",),
}


def mimi_tensor_shapes(config: PersonaPlexMimiConfig) -> dict[str, Shape]:
    """Every tensor of a Mimi file for these sizes, by its newer name."""
    width, card, dim = config.hidden_size, config.codebook_size, config.codebook_dim
    shapes = _encoder_shapes(config)
    shapes.update(_decoder_shapes(config))
    for side in ("encoder", "decoder"):
        for index in range(config.num_hidden_layers):
            shapes.update(_layer_shapes(config, f"{side}_transformer.transformer.layers.{index}"))
    shapes["downsample.conv.conv.conv.weight"] = (width, width, 2 * FRAME_STRIDE)
    shapes["upsample.convtr.convtr.convtr.weight"] = (width, 1, 2 * FRAME_STRIDE)
    for part in ("rvq_first", "rvq_rest"):
        shapes[f"quantizer.{part}.input_proj.weight"] = (dim, width, 1)
        shapes[f"quantizer.{part}.output_proj.weight"] = (width, dim, 1)
    for index in range(config.num_codebooks):
        prefix = codebook_prefix(index)
        shapes[f"{prefix}.embedding_sum"] = (card, dim)
        shapes[f"{prefix}.cluster_usage"] = (card,)
        shapes[f"{prefix}._initialized"] = (1,)
    return shapes


def codebook_prefix(index: int) -> str:
    """Name the codebook of a row of codes: the first stands apart."""
    if index == 0:
        return "quantizer.rvq_first.vq.layers.0._codebook"
    return f"quantizer.rvq_rest.vq.layers.{index - 1}._codebook"


def stored_name(names: frozenset[str], name: str) -> str:
    """Return the name under which a file with ``names`` has a tensor: codebooks were renamed."""
    prefix, _, last = name.rpartition(".")
    for old in _OLD_CODEBOOK_NAMES.get(last, ()):
        if f"{prefix}.{old}" in names and name not in names:
            return f"{prefix}.{old}"
    return name


def _encoder_shapes(config: PersonaPlexMimiConfig) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    channels = config.num_filters
    _add_conv(shapes, "encoder.model.0.conv.conv", channels, 1, _KERNEL)
    for index, ratio in enumerate(reversed(config.ratios)):
        _add_block(shapes, f"encoder.model.{3 * index + 1}", channels)
        _add_conv(
            shapes,
            f"encoder.model.{3 * index + 3}.conv.conv",
            2 * channels,
            channels,
            2 * ratio,
        )
        channels *= 2
    last = f"encoder.model.{3 * len(config.ratios) + 2}.conv.conv"
    _add_conv(shapes, last, config.hidden_size, channels, _LAST_KERNEL)
    return shapes


def _decoder_shapes(config: PersonaPlexMimiConfig) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    channels = config.num_filters * 2 ** len(config.ratios)
    _add_conv(shapes, "decoder.model.0.conv.conv", channels, config.hidden_size, _KERNEL)
    for index, ratio in enumerate(config.ratios):
        name = f"decoder.model.{3 * index + 2}.convtr.convtr"
        shapes[f"{name}.weight"] = (channels, channels // 2, 2 * ratio)
        shapes[f"{name}.bias"] = (channels // 2,)
        channels //= 2
        _add_block(shapes, f"decoder.model.{3 * index + 3}", channels)
    last = f"decoder.model.{3 * len(config.ratios) + 2}.conv.conv"
    _add_conv(shapes, last, 1, channels, _LAST_KERNEL)
    return shapes


def _add_block(shapes: dict[str, Shape], name: str, channels: int) -> None:
    _add_conv(shapes, f"{name}.block.1.conv.conv", channels // 2, channels, _RESIDUAL_KERNEL)
    _add_conv(shapes, f"{name}.block.3.conv.conv", channels, channels // 2, 1)


def _add_conv(shapes: dict[str, Shape], name: str, out: int, inputs: int, kernel: int) -> None:
    shapes[f"{name}.weight"] = (out, inputs, kernel)
    shapes[f"{name}.bias"] = (out,)


def _layer_shapes(config: PersonaPlexMimiConfig, layer: str) -> dict[str, Shape]:
    width, hidden = config.hidden_size, config.intermediate_size
    shapes: dict[str, Shape] = {
        f"{layer}.self_attn.in_proj_weight": (3 * width, width),
        f"{layer}.self_attn.out_proj.weight": (width, width),
        f"{layer}.linear1.weight": (hidden, width),
        f"{layer}.linear2.weight": (width, hidden),
    }
    for part in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"):
        shapes[f"{layer}.{part}"] = (width,)
    for part in ("layer_scale_1.scale", "layer_scale_2.scale"):
        shapes[f"{layer}.{part}"] = (width,)
    return shapes
