"""From the checkpoint's tensor names to the language model.

Knows the original names and how our modules lay the tensors out; where tensors come from (a
safetensors file, or random numbers of the real sizes) is the source's business. Each tensor goes
straight to its place on the target device.
"""

import torch

from livekit_personaplex.layers.gated_blocks import GatedBlock
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.depformer import Depformer
from livekit_personaplex.model.lm import LanguageModel
from livekit_personaplex.model.temporal import TemporalTransformer
from livekit_personaplex.model.weights import Shape, TensorSource, stored_dep_q


def lm_tensor_shapes(config: PersonaPlexConfig, *, stored_steps: int) -> dict[str, Shape]:
    """Every tensor that ``model.safetensors`` must have, by its original name.

    Args:
        config: Sizes.
        stored_steps: How many inner-step sets the file stores, 8 or 16 whatever the config says:
            the reference makes the second eight copies of the first where they are not stored.
    """
    width = config.temporal_config.hidden_size
    text_rows, card = config.text_embedding_rows, config.audio_vocab_size
    shapes: dict[str, Shape] = {
        "text_emb.weight": (text_rows, width),
        "out_norm.alpha": (1, 1, width),
        "text_linear.weight": (config.text_vocab_size, width),
    }
    for codebook in range(config.num_audio_codebooks):
        shapes[f"emb.{codebook}.weight"] = (card + 1, width)
    shapes.update(_temporal_shapes(config))
    shapes.update(_depformer_shapes(config, stored_steps))
    return shapes


def load_language_model(
    config: PersonaPlexConfig, source: TensorSource, *, device: torch.device, dtype: torch.dtype
) -> LanguageModel:
    """Read the language model; of stored inner-step sets only the first eight are read.

    Args:
        config: Sizes, which the tensors must agree with.
        source: Where tensors come from.
        device: Where they go.
        dtype: Dtype of all weights but norms, which stay float32.

    Raises:
        CheckpointError: Tensors are missing, unexpected or misshaped; it names them.
    """
    stored_steps = stored_dep_q(source.names)
    source.check(lm_tensor_shapes(config, stored_steps=stored_steps), _unused_shapes(config))
    reader = _Reader(source, device, dtype)
    return LanguageModel(
        config,
        embeddings=_load_embeddings(config, reader),
        temporal=_load_temporal(config, reader),
        text_head=reader.weight("text_linear.weight"),
        depformer=_load_depformer(config, reader),
    )


class _Reader:
    """A source with its target fixed."""

    def __init__(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        self._source, self.device, self.dtype = source, device, dtype

    def weight(self, name: str) -> torch.Tensor:
        return self._source.read(name, self.device, self.dtype)

    def norm(self, name: str) -> torch.Tensor:
        return self._source.read(name, self.device, torch.float32).flatten()

    def stack(self, names: list[str], shape: Shape) -> torch.Tensor:
        """Read tensors into one, in place, so that no second copy of all exists."""
        stacked = torch.empty((len(names), *shape), dtype=self.dtype, device=self.device)
        for index, name in enumerate(names):
            stacked[index].copy_(self.weight(name))
        return stacked


def _temporal_shapes(config: PersonaPlexConfig) -> dict[str, Shape]:
    temporal = config.temporal_config
    width, hidden = temporal.hidden_size, temporal.intermediate_size
    shapes: dict[str, Shape] = {}
    for index in range(temporal.num_hidden_layers):
        layer = f"transformer.layers.{index}"
        shapes[f"{layer}.norm1.alpha"] = (1, 1, width)
        shapes[f"{layer}.norm2.alpha"] = (1, 1, width)
        shapes[f"{layer}.self_attn.in_proj_weight"] = (3 * width, width)
        shapes[f"{layer}.self_attn.out_proj.weight"] = (width, width)
        shapes[f"{layer}.gating.linear_in.weight"] = (2 * hidden, width)
        shapes[f"{layer}.gating.linear_out.weight"] = (width, hidden)
    return shapes


def _depformer_shapes(config: PersonaPlexConfig, stored: int) -> dict[str, Shape]:
    depformer, width = config.depformer_config, config.temporal_config.hidden_size
    dim, hidden = depformer.hidden_size, depformer.intermediate_size
    card = config.audio_vocab_size
    shapes: dict[str, Shape] = {"depformer_text_emb.weight": (config.text_embedding_rows, dim)}
    for step in range(depformer.num_active_codebooks - 1):
        shapes[f"depformer_emb.{step}.weight"] = (card + 1, dim)
    for step in range(stored):
        shapes[f"depformer_in.{step}.weight"] = (dim, width)
        shapes[f"linears.{step}.weight"] = (card, dim)
    for index in range(depformer.num_hidden_layers):
        layer = f"depformer.layers.{index}"
        shapes[f"{layer}.norm1.alpha"] = (1, 1, dim)
        shapes[f"{layer}.norm2.alpha"] = (1, 1, dim)
        shapes[f"{layer}.self_attn.in_proj_weight"] = (stored * 3 * dim, dim)
        shapes[f"{layer}.self_attn.out_proj.weight"] = (stored * dim, dim)
        for step in range(stored):
            shapes[f"{layer}.gating.{step}.linear_in.weight"] = (2 * hidden, dim)
            shapes[f"{layer}.gating.{step}.linear_out.weight"] = (dim, hidden)
    return shapes


def _unused_shapes(config: PersonaPlexConfig) -> dict[str, Shape]:
    """Tables of the caller's inner steps: checkpoints with 8 stored sets differ in having them."""
    shape = (config.audio_vocab_size + 1, config.depformer_config.hidden_size)
    first = config.depformer_config.num_active_codebooks - 1
    return {
        f"depformer_emb.{step}.weight": shape
        for step in range(first, config.num_audio_codebooks - 1)
    }


def _load_embeddings(config: PersonaPlexConfig, reader: _Reader) -> torch.Tensor:
    """All tables under one another, and a last row of zeros for absent tokens."""
    names = ["text_emb.weight"]
    names += [f"emb.{codebook}.weight" for codebook in range(config.num_audio_codebooks)]
    sizes = [config.text_embedding_rows]
    sizes += [config.audio_vocab_size + 1] * config.num_audio_codebooks
    table = torch.zeros(
        (sum(sizes) + 1, config.temporal_config.hidden_size),
        dtype=reader.dtype,
        device=reader.device,
    )
    start = 0
    for name, size in zip(names, sizes, strict=True):
        table[start : start + size].copy_(reader.weight(name))
        start += size
    return table


def _load_temporal(config: PersonaPlexConfig, reader: _Reader) -> TemporalTransformer:
    layers = []
    for index in range(config.temporal_config.num_hidden_layers):
        layer = f"transformer.layers.{index}"
        layers.append(
            GatedBlock(
                norm1=reader.norm(f"{layer}.norm1.alpha"),
                in_proj=reader.weight(f"{layer}.self_attn.in_proj_weight"),
                out_proj=reader.weight(f"{layer}.self_attn.out_proj.weight"),
                norm2=reader.norm(f"{layer}.norm2.alpha"),
                linear_in=reader.weight(f"{layer}.gating.linear_in.weight"),
                linear_out=reader.weight(f"{layer}.gating.linear_out.weight"),
            )
        )
    return TemporalTransformer(config.temporal_config, layers, reader.norm("out_norm.alpha"))


def _load_depformer(config: PersonaPlexConfig, reader: _Reader) -> Depformer:
    depformer = config.depformer_config
    dim = depformer.hidden_size
    steps, card = depformer.num_active_codebooks, config.audio_vocab_size
    inputs = reader.stack(
        [f"depformer_in.{step}.weight" for step in range(steps)],
        (dim, config.temporal_config.hidden_size),
    )
    return Depformer(
        config=depformer,
        input_proj=inputs.flatten(0, 1),
        text_embedding=reader.weight("depformer_text_emb.weight"),
        audio_embeddings=reader.stack(
            [f"depformer_emb.{step}.weight" for step in range(steps - 1)], (card + 1, dim)
        ),
        steps=_load_inner_steps(config, reader),
        heads=reader.stack([f"linears.{step}.weight" for step in range(steps)], (card, dim)),
    )


def _load_inner_steps(config: PersonaPlexConfig, reader: _Reader) -> list[list[GatedBlock]]:
    """Read the blocks of every inner step that is run; fused projections are read once a layer."""
    depformer = config.depformer_config
    dim, num_steps = depformer.hidden_size, depformer.num_active_codebooks
    steps: list[list[GatedBlock]] = [[] for _ in range(num_steps)]
    for index in range(depformer.num_hidden_layers):
        layer = f"depformer.layers.{index}"
        norm1, norm2 = reader.norm(f"{layer}.norm1.alpha"), reader.norm(f"{layer}.norm2.alpha")
        in_proj = reader.weight(f"{layer}.self_attn.in_proj_weight").view(-1, 3 * dim, dim)
        out_proj = reader.weight(f"{layer}.self_attn.out_proj.weight").view(-1, dim, dim)
        for step, blocks in enumerate(steps):
            blocks.append(
                GatedBlock(
                    norm1=norm1,
                    in_proj=in_proj[step].clone(),
                    out_proj=out_proj[step].clone(),
                    norm2=norm2,
                    linear_in=reader.weight(f"{layer}.gating.{step}.linear_in.weight"),
                    linear_out=reader.weight(f"{layer}.gating.{step}.linear_out.weight"),
                )
            )
    return steps
