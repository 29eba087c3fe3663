"""The checkpoint's names of the language model's weights."""

from collections.abc import Iterator, Mapping

import torch

from examples.demo_model.lm.layers import Block, DepthBlock, TrainingLm
from examples.demo_model.sizes import CARD, DELAYS, NUM_STEPS


def product_tensors(net: TrainingLm) -> dict[str, torch.Tensor]:
    """Give every tensor of ``model.safetensors``; what only training needs is left out.

    Returns:
        By name, float32 copies on the CPU.
    """
    return {name: view.detach().float().cpu().clone() for name, view in _views(net)}


def load_product_tensors(net: TrainingLm, tensors: Mapping[str, torch.Tensor]) -> None:
    """Read the weights of a checkpoint; weights that only training has are left as they are."""
    with torch.no_grad():
        for name, view in _views(net):
            view.copy_(tensors[name])


def _views(net: TrainingLm) -> Iterator[tuple[str, torch.Tensor]]:
    text_rows = net.sizes.text_card + 1
    tables = net.tables.split([text_rows] + [CARD + 1] * (len(DELAYS) - 1))
    yield "text_emb.weight", tables[0]
    for codebook, table in enumerate(tables[1:]):
        yield f"emb.{codebook}.weight", table
    for index, block in enumerate(net.blocks):
        assert isinstance(block, Block)
        yield from _block_views(f"transformer.layers.{index}", block)
    yield "out_norm.alpha", net.out_norm.alpha.view(1, 1, -1)
    yield "text_linear.weight", net.text_head
    yield "depformer_text_emb.weight", net.depth_text
    for step in range(NUM_STEPS):
        yield f"depformer_in.{step}.weight", net.depth_in[step]
        yield f"linears.{step}.weight", net.depth_heads[step]
    for step in range(NUM_STEPS - 1):
        yield f"depformer_emb.{step}.weight", net.depth_audio[step]
    for index, depth_block in enumerate(net.depth_blocks):
        assert isinstance(depth_block, DepthBlock)
        yield from _depth_views(f"depformer.layers.{index}", depth_block)


def _block_views(layer: str, block: Block) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{layer}.norm1.alpha", block.norm1.alpha.view(1, 1, -1)
    yield f"{layer}.norm2.alpha", block.norm2.alpha.view(1, 1, -1)
    yield f"{layer}.self_attn.in_proj_weight", block.in_proj
    yield f"{layer}.self_attn.out_proj.weight", block.out_proj
    yield f"{layer}.gating.linear_in.weight", block.linear_in
    yield f"{layer}.gating.linear_out.weight", block.linear_out


def _depth_views(layer: str, block: DepthBlock) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{layer}.norm1.alpha", block.norm1.alpha.view(1, 1, -1)
    yield f"{layer}.norm2.alpha", block.norm2.alpha.view(1, 1, -1)
    yield f"{layer}.self_attn.in_proj_weight", block.in_proj.flatten(0, 1)
    yield f"{layer}.self_attn.out_proj.weight", block.out_proj.flatten(0, 1)
    for step in range(NUM_STEPS):
        yield f"{layer}.gating.{step}.linear_in.weight", block.linear_in[step]
        yield f"{layer}.gating.{step}.linear_out.weight", block.linear_out[step]
