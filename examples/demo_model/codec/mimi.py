"""The codec for training: whole clips, with the codes and the sound of the product's stream.

``Mimi.save`` and ``Mimi.load`` speak the checkpoint's tensor names; codebooks are stored as means.

Legend: B clips, n frames, E width, K codebooks.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from examples.demo_model.codec.mimi_layers import (
    CausalConv,
    Downsample,
    ResidualBlock,
    StridedConv,
    Transformer,
    TransposedConv,
    Upsample,
)
from examples.demo_model.codec.quantizer import Quantizer
from examples.demo_model.sizes import MimiSizes
from livekit_personaplex.model.config import PersonaPlexMimiConfig
from livekit_personaplex.model.mimi_names import codebook_prefix

FILE_NAME = "tokenizer-e351c8d8-checkpoint125.safetensors"
_RATIOS = PersonaPlexMimiConfig().ratios
_STORED = {
    "encoder.": "encoder.model.",
    "decoder.": "decoder.model.",
    "encoder_transformer.": "encoder_transformer.transformer.layers.",
    "decoder_transformer.": "decoder_transformer.transformer.layers.",
    "quantizer.input_first.": "quantizer.rvq_first.input_proj.",
    "quantizer.input_rest.": "quantizer.rvq_rest.input_proj.",
    "quantizer.output_first.": "quantizer.rvq_first.output_proj.",
    "quantizer.output_rest.": "quantizer.rvq_rest.output_proj.",
    "in_proj_weight": "self_attn.in_proj_weight",
    "out_proj.": "self_attn.out_proj.",
    "scale1": "layer_scale_1.scale",
    "scale2": "layer_scale_2.scale",
}
_SIDES = ("encoder", "decoder", "quantizer")
_DECODER_PARTS = ("decoder", "upsample", "quantizer.output")


class Mimi(nn.Module):
    """Encoder, quantizer and decoder."""

    def __init__(self, sizes: MimiSizes) -> None:
        """Draw weights; set the seed before. ``quantizer.start`` places the codebooks."""
        super().__init__()
        self.sizes = sizes
        self.encoder = _encoder(sizes)
        self.encoder_transformer = _transformer(sizes)
        self.downsample = Downsample(sizes.width)
        self.quantizer = Quantizer(sizes)
        self.upsample = Upsample(sizes.width)
        self.decoder_transformer = _transformer(sizes)
        self.decoder = _decoder(sizes)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.quantizer.sums.device

    def latent(self, audio: Tensor) -> Tensor:
        """``[B, n * 1920]`` samples to ``[B, n, E] float32``."""
        x = audio.unsqueeze(2)
        for index, layer in enumerate(self.encoder.values()):
            x = _run(layer, x, first=index == 0)
        z: Tensor = self.downsample(self.encoder_transformer(x))
        return z.float()

    def wave(self, vectors: Tensor) -> Tensor:
        """``[B, n, E]`` to ``[B, n * 1920] float32`` samples."""
        x: Tensor = self.decoder_transformer(self.upsample(vectors))
        *layers, last = self.decoder.values()
        for index, layer in enumerate(layers):
            x = _run(layer, x, first=index == 0)
        with torch.autocast(x.device.type, enabled=False):
            return _run(last, x.float(), first=False).squeeze(2)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """``[B, 1, n * 1920] float32`` to codes ``[B, K, n] int64``."""
        return self.quantizer.encode(self.latent(x.squeeze(1)))

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes ``[B, K, n]`` to ``[B, 1, n * 1920] float32``."""
        return self.wave(self.quantizer.decode(codes)).unsqueeze(1)

    def decoder_parameters(self) -> dict[str, nn.Parameter]:
        """All that lies behind the codes; nothing of it changes a code."""
        return {n: p for n, p in self.named_parameters() if n.startswith(_DECODER_PARTS)}

    def encoder_parameters(self) -> dict[str, nn.Parameter]:
        """All that lies before the codes."""
        return {n: p for n, p in self.named_parameters() if not n.startswith(_DECODER_PARTS)}

    @torch.no_grad()
    def fix_encoder(self) -> None:
        """Round all that decides the codes as the file will hold it: codes stay what they are."""
        for parameter in self.encoder_parameters().values():
            parameter.copy_(parameter.to(torch.bfloat16).float())
        self.quantizer.centre()

    def save(self, path: Path) -> None:
        """Write the product's file, bfloat16."""
        tensors = {}
        for name, tensor in _named_tensors(self).items():
            tensors[name] = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for index, book in enumerate(self.quantizer.codebooks.unbind(0)):
            prefix = codebook_prefix(index)
            tensors[f"{prefix}.embedding_sum"] = book.to("cpu", torch.bfloat16).contiguous()
            tensors[f"{prefix}.cluster_usage"] = torch.ones(len(book), dtype=torch.bfloat16)
            tensors[f"{prefix}._initialized"] = torch.ones(1, dtype=torch.bfloat16)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        save_file(tensors, partial)
        partial.replace(path)

    @staticmethod
    def load(path: Path, sizes: MimiSizes) -> "Mimi":
        """Read the product's file into float32 weights on the CPU.

        Raises:
            KeyError: The file lacks a tensor that these sizes ask for.
        """
        stored = load_file(path)
        mimi = Mimi(sizes)
        with torch.no_grad():
            for name, tensor in _named_tensors(mimi).items():
                tensor.copy_(stored[name].float().view_as(tensor))
            for index in range(sizes.num_codebooks):
                prefix = codebook_prefix(index)
                mimi.quantizer.sums[index].copy_(stored[f"{prefix}.embedding_sum"].float())
                mimi.quantizer.usage[index].copy_(stored[f"{prefix}.cluster_usage"].float())
        return mimi


def _encoder(sizes: MimiSizes) -> nn.ModuleDict:
    """Layers by the number that the checkpoint gives them; activations in between have one too."""
    channels = sizes.num_filters
    first = CausalConv(1, channels, 7)
    with torch.no_grad():
        first.weight.mul_(8.0)  # speech is far below full scale
    layers: dict[str, nn.Module] = {"0": first}
    for index, ratio in enumerate(reversed(_RATIOS)):
        layers[str(3 * index + 1)] = ResidualBlock(channels)
        layers[str(3 * index + 3)] = StridedConv(channels, 2 * channels, ratio)
        channels *= 2
    layers[str(3 * len(_RATIOS) + 2)] = CausalConv(channels, sizes.width, 3)
    return nn.ModuleDict(layers)


def _decoder(sizes: MimiSizes) -> nn.ModuleDict:
    channels = sizes.num_filters * 2 ** len(_RATIOS)
    layers: dict[str, nn.Module] = {"0": CausalConv(sizes.width, channels, 7)}
    for index, ratio in enumerate(_RATIOS):
        layers[str(3 * index + 2)] = TransposedConv(channels, channels // 2, ratio)
        channels //= 2
        layers[str(3 * index + 3)] = ResidualBlock(channels)
    last = CausalConv(channels, 1, 3)
    with torch.no_grad():
        last.weight.mul_(0.1)
    layers[str(3 * len(_RATIOS) + 2)] = last
    return nn.ModuleDict(layers)


def _transformer(sizes: MimiSizes) -> Transformer:
    return Transformer(
        width=sizes.width,
        heads=sizes.heads,
        hidden=sizes.hidden,
        layers=sizes.layers,
        context=sizes.context,
    )


def _run(layer: nn.Module, x: Tensor, *, first: bool) -> Tensor:
    """Run a layer; all but the first and the residual blocks have an activation before them."""
    plain = first or isinstance(layer, ResidualBlock)
    y: Tensor = layer(x if plain else F.elu(x))
    return y


def _named_tensors(mimi: Mimi) -> dict[str, Tensor]:
    """Parameters by their stored names, shaped as stored (1x1 projections have a third axis)."""
    tensors: dict[str, Tensor] = {}
    for path, module in mimi.named_modules():
        layer_name = getattr(module, "stored", "")
        for own, parameter in module.named_parameters(recurse=False):
            name = f"{path}.{layer_name}.{own}" if layer_name else f"{path}.{own}"
            for short, stored in _STORED.items():
                is_part = not short.startswith(_SIDES) and short in name
                if is_part or name.startswith(short):
                    name = name.replace(short, stored, 1)
            three = path.startswith("quantizer.")
            tensors[name] = parameter.unsqueeze(2) if three else parameter
    return tensors
