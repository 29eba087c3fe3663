"""Reads Mimi: lays the stored tensors out as our modules want them.

What is constant (codebooks, their norms, projected codebooks, layer scales) is computed here once.
"""

import torch

from livekit_personaplex.layers.conv import (
    CausalConv1d,
    CausalConvTranspose1d,
    DepthwiseUpsample,
)
from livekit_personaplex.model.config import PersonaPlexMimiConfig
from livekit_personaplex.model.mimi import Mimi, MimiDecoder, MimiEncoder
from livekit_personaplex.model.mimi_names import (
    FRAME_STRIDE,
    codebook_prefix,
    mimi_tensor_shapes,
    stored_name,
)
from livekit_personaplex.model.mimi_quantizer import QuantizerDecoder, QuantizerEncoder
from livekit_personaplex.model.mimi_seanet import ResidualBlock, SeanetDecoder, SeanetEncoder
from livekit_personaplex.model.mimi_transformer import MimiTransformer, MimiTransformerLayer
from livekit_personaplex.model.weights import TensorSource

_MIN_CLUSTER_USAGE = 1e-5


def load_mimi(config: PersonaPlexMimiConfig, source: TensorSource, *, device: torch.device) -> Mimi:
    """Read Mimi in float32; of the stored codebooks only the active ones are read.

    Raises:
        CheckpointError: Tensors are missing, unexpected or misshaped; it names them.
    """
    expected = mimi_tensor_shapes(config)
    renamed = {name: stored_name(source.names, name) for name in expected}
    flags = {name: shape for name, shape in expected.items() if name.endswith("._initialized")}
    source.check(
        {renamed[name]: shape for name, shape in expected.items() if name not in flags},
        {renamed[name]: shape for name, shape in flags.items()},
    )
    loader = _MimiLoader(config, source, device)
    with torch.no_grad():
        return Mimi(loader.encoder(), loader.decoder())


class _MimiLoader:
    """Reads the parts of Mimi from one open file to one device."""

    def __init__(
        self, config: PersonaPlexMimiConfig, source: TensorSource, device: torch.device
    ) -> None:
        self._config, self._source, self._device = config, source, device
        self._codebooks = self._load_codebooks()

    def encoder(self) -> MimiEncoder:
        stages = []
        for index, ratio in enumerate(reversed(self._config.ratios)):
            block = self._block(f"encoder.model.{3 * index + 1}")
            stages.append((block, self._conv(f"encoder.model.{3 * index + 3}", stride=ratio)))
        last = f"encoder.model.{3 * len(stages) + 2}"
        input_proj = torch.cat(
            (
                self._read("quantizer.rvq_first.input_proj.weight").squeeze(2),
                self._read("quantizer.rvq_rest.input_proj.weight").squeeze(2),
            )
        )
        return MimiEncoder(
            config=self._config,
            seanet=SeanetEncoder(self._conv("encoder.model.0"), tuple(stages), self._conv(last)),
            transformer=self._transformer("encoder"),
            downsample=CausalConv1d.from_checkpoint(
                self._read("downsample.conv.conv.conv.weight"), None, stride=FRAME_STRIDE
            ),
            quantizer=QuantizerEncoder.from_codebooks(input_proj, self._codebooks),
        )

    def decoder(self) -> MimiDecoder:
        stages = []
        for index, ratio in enumerate(self._config.ratios):
            name = f"decoder.model.{3 * index + 2}.convtr.convtr"
            upsample = CausalConvTranspose1d.from_checkpoint(
                self._read(f"{name}.weight"), self._read(f"{name}.bias"), stride=ratio
            )
            stages.append((upsample, self._block(f"decoder.model.{3 * index + 3}")))
        last = f"decoder.model.{3 * len(stages) + 2}"
        return MimiDecoder(
            config=self._config,
            quantizer=QuantizerDecoder.from_codebooks(
                self._read("quantizer.rvq_first.output_proj.weight").squeeze(2),
                self._read("quantizer.rvq_rest.output_proj.weight").squeeze(2),
                self._codebooks,
            ),
            upsample=DepthwiseUpsample.from_checkpoint(
                self._read("upsample.convtr.convtr.convtr.weight"), stride=FRAME_STRIDE
            ),
            transformer=self._transformer("decoder"),
            seanet=SeanetDecoder(self._conv("decoder.model.0"), tuple(stages), self._conv(last)),
        )

    def _read(self, name: str) -> torch.Tensor:
        stored = stored_name(self._source.names, name)
        return self._source.read(stored, self._device, torch.float32)

    def _conv(self, name: str, stride: int = 1) -> CausalConv1d:
        return CausalConv1d.from_checkpoint(
            self._read(f"{name}.conv.conv.weight"),
            self._read(f"{name}.conv.conv.bias"),
            stride=stride,
        )

    def _block(self, name: str) -> ResidualBlock:
        return ResidualBlock(self._conv(f"{name}.block.1"), self._conv(f"{name}.block.3"))

    def _transformer(self, side: str) -> MimiTransformer:
        layers = [
            self._layer(f"{side}_transformer.transformer.layers.{index}")
            for index in range(self._config.num_hidden_layers)
        ]
        return MimiTransformer(self._config, layers, device=self._device)

    def _layer(self, layer: str) -> MimiTransformerLayer:
        scale1 = self._read(f"{layer}.layer_scale_1.scale").unsqueeze(1)
        scale2 = self._read(f"{layer}.layer_scale_2.scale").unsqueeze(1)
        return MimiTransformerLayer(
            norm1_weight=self._read(f"{layer}.norm1.weight"),
            norm1_bias=self._read(f"{layer}.norm1.bias"),
            in_proj=self._read(f"{layer}.self_attn.in_proj_weight"),
            out_proj=self._read(f"{layer}.self_attn.out_proj.weight").mul_(scale1),
            norm2_weight=self._read(f"{layer}.norm2.weight"),
            norm2_bias=self._read(f"{layer}.norm2.bias"),
            linear1=self._read(f"{layer}.linear1.weight"),
            linear2=self._read(f"{layer}.linear2.weight").mul_(scale2),
        )

    def _load_codebooks(self) -> torch.Tensor:
        """The active codebooks, ``[K, V, Q]``."""
        codebooks = []
        for index in range(self._config.num_active_codebooks):
            prefix = codebook_prefix(index)
            usage = self._read(f"{prefix}.cluster_usage").clamp(min=_MIN_CLUSTER_USAGE)
            codebooks.append(self._read(f"{prefix}.embedding_sum") / usage.unsqueeze(1))
        return torch.stack(codebooks)
