"""Every Triton kernel gives what its plain reference gives.

On a GPU the cases run as they are; elsewhere one test runs them all in Triton's interpreter, in a
process of its own because Triton settles at import how it runs.
"""

import dataclasses
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from livekit_personaplex.kernels import fused_linear, glue, ring_attention, token_sampling
from livekit_personaplex.kernels.attention_tuning import AttentionTuning
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.kernels.inner_attention import attend_inner_steps
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.rotation import rope_tables
from livekit_personaplex.kernels.rows import Rows
from livekit_personaplex.kernels.token_embedding import add_embedding
from livekit_personaplex.model.config import PersonaPlexMimiConfig
from livekit_personaplex.model.mimi_transformer import (
    MimiTransformer,
    MimiTransformerLayer,
    ring_entries,
)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
HAS_TRITON = INTERPRETED or DEVICE.type == "cuda"

on_gpu = pytest.mark.gpu
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs a CUDA device")
CONTEXT, CAPACITY, HEADS, HEAD_DIM, SLOTS = 16, 21, 2, 16, 4


@pytest.mark.skipif(HAS_TRITON, reason="the cases run here as they are")
def test_the_kernels_agree_with_their_references_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-2000:]
    assert " passed" in child.stdout


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gpu(module: str) -> Any:
    """The GPU's half of a kernel module."""
    return importlib.import_module(f"livekit_personaplex.kernels.gpu.{module}")


def there(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def tolerance(dtype: torch.dtype) -> float:
    return 3e-6 if dtype == torch.float32 else 2.5e-2


def assert_close(ours: torch.Tensor, reference: torch.Tensor, *, within: float) -> None:
    """Compare with the largest value of the reference for a unit."""
    assert ours.dtype == reference.dtype and ours.shape == reference.shape
    unit = reference.float().abs().max().clamp_min(1e-6)
    worst = (ours.cpu().float() - reference.float()).abs().max() / unit
    assert worst <= within


RING_ERROR = {torch.float32: 1e-6, torch.bfloat16: 1e-2, FP8: 0.15 if INTERPRETED else 0.07}
"""A step of the format at its largest value; the interpreter cuts 8-bit floats off."""

ROWS = {
    "one row at the start": ([0], [0], [1]),
    "one row at 1": ([3], [1], [1]),
    "before the turn": ([1], [CONTEXT - 1], [1]),
    "at the turn": ([1, 0], [CONTEXT, CONTEXT + 1], [1, 1]),
    "all slots, some idle": ([0, 1, 2, 3], [CAPACITY - 1, CAPACITY, 3, 200], [1, 1, 0, 1]),
    "nobody": ([0, 1, 2, 3], [0, 5, 16, 100], [0, 0, 0, 0]),
    "a prompt beside a call": ([2, 2, 2, 2, 1], [14, 15, 16, 17, 44], [1, 1, 1, 1, 1]),
    "a prompt that ends early": ([2, 2, 2, 0, 0], [20, 21, 22, 0, 0], [1, 1, 1, 0, 0]),
}


@on_gpu
@needs_triton
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.bfloat16, FP8], ids=str)
@pytest.mark.parametrize("case", ROWS)
def test_ring_attention(case: str, kv_dtype: torch.dtype) -> None:
    dtype = torch.float32 if kv_dtype == torch.float32 else torch.bfloat16
    slots, positions, mask = (torch.tensor(column) for column in ROWS[case])
    rows = Rows(slots, positions, mask.bool())
    theirs = Rows(*(there(column) for column in (rows.slots, rows.positions, rows.mask)))
    plain, ours = filled_rings(kv_dtype, dtype)
    kernels = gpu("ring_attention")
    tables = rope_tables(positions, head_dim=HEAD_DIM, max_period=10000.0)
    projected = torch.randn(len(slots), 3 * HEADS * HEAD_DIM).to(dtype)
    query = ring_attention.rotate_and_write(projected, *tables, rows, plain)
    our_query = kernels.rotate_and_write(there(projected), *map(there, tables), theirs, ours)
    assert_close(our_query, query, within=tolerance(dtype))
    assert_close(dequantized(ours, "key"), dequantized(plain, "key"), within=RING_ERROR[kv_dtype])
    assert_close(
        dequantized(ours, "value"), dequantized(plain, "value"), within=RING_ERROR[kv_dtype]
    )
    copy_rings(plain, ours)
    seen = ring_attention.attend_rings(query, rows, plain, context=CONTEXT)
    our_seen = kernels.attend_rings(there(query.contiguous()), theirs, ours, context=CONTEXT)
    assert_close(our_seen, seen, within=tolerance(dtype))


def filled_rings(kv_dtype: torch.dtype, dtype: torch.dtype) -> tuple[KvRings, KvRings]:
    """One layer's rings with the same random content, on the CPU and on the device."""
    shape = (1, SLOTS, HEADS, CAPACITY, HEAD_DIM)
    tuning = AttentionTuning(block_keys=8, range_keys=16, num_warps=1, num_stages=1)
    plain, ours = (
        dataclasses.replace(
            KvRings.create(shape, dtype=kv_dtype, device=device).layer(0), tuning=tuning
        )
        for device in (torch.device("cpu"), DEVICE)
    )
    for position in range(CAPACITY):
        rows = Rows(
            torch.arange(SLOTS), torch.full((SLOTS,), position), torch.ones(SLOTS, dtype=torch.bool)
        )
        projected = torch.randn(SLOTS, 3 * HEADS * HEAD_DIM).to(dtype)
        tables = rope_tables(rows.positions, head_dim=HEAD_DIM, max_period=10000.0)
        ring_attention.rotate_and_write(projected, *tables, rows, plain)
    copy_rings(plain, ours)
    return plain, ours


def copy_rings(source: KvRings, target: KvRings) -> None:
    for name in ("keys", "values"):
        bits = getattr(source, name).view(torch.uint8)
        getattr(target, name).view(torch.uint8).copy_(bits)
    if source.key_scales is not None:
        target.key_scales.copy_(source.key_scales)
        target.value_scales.copy_(source.value_scales)


def dequantized(rings: KvRings, name: str) -> torch.Tensor:
    ring, scales = getattr(rings, f"{name}s").cpu(), getattr(rings, f"{name}_scales")
    wide = ring.to(torch.float32)
    return wide if scales is None else wide * scales.cpu().unsqueeze(-1)


@on_gpu
@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms_and_gates(dtype: torch.dtype) -> None:
    x, delta = torch.randn(2, 5, 48).to(dtype)
    alpha = torch.rand(48) + 0.5
    kernels = gpu("glue")
    total, normed = glue.add_rms_norm(x, delta, alpha, 1e-8)
    our_total, our_normed = kernels.add_rms_norm(there(x), there(delta), there(alpha), 1e-8)
    assert_close(our_total, total, within=tolerance(dtype))
    assert_close(our_normed, normed, within=tolerance(dtype))
    our_normed = kernels.rms_norm(there(x), there(alpha), 1e-8)
    assert_close(our_normed, glue.rms_norm(x, alpha, 1e-8), within=tolerance(dtype))
    halves = torch.randn(3, 2 * 1500).to(dtype)
    ours = kernels.silu_gate(there(halves))
    assert_close(ours, glue.silu_gate(halves), within=tolerance(dtype))


@on_gpu
@needs_triton
@pytest.mark.parametrize("num_rows", [1, 3])
def test_inner_attention(num_rows: int) -> None:
    keys, values = torch.zeros(2, num_rows, 2, 8, 8)
    our_keys, our_values = keys.to(DEVICE).clone(), values.to(DEVICE).clone()
    kernels = gpu("inner_attention")
    for step in range(8):
        projected = torch.randn(num_rows, 3 * 2 * 8)
        seen = attend_inner_steps(projected, keys, values, step=step)
        ours = kernels.attend_inner_steps(there(projected), our_keys, our_values, step=step)
        assert_close(ours, seen, within=tolerance(torch.float32))
        assert torch.equal(our_keys.cpu(), keys) and torch.equal(our_values.cpu(), values)


@on_gpu
@needs_triton
@pytest.mark.parametrize("vocabulary", [40, 300])
def test_sampling_draws_the_same_tokens(vocabulary: int) -> None:
    num_rows = 32
    logits = 3 * torch.randn(num_rows, vocabulary)
    logits[1] = logits[1].round()
    draws = {
        "temperatures": torch.rand(num_rows) * 2,
        "top_ks": torch.randint(1, 2 * vocabulary, (num_rows,)),
        "seeds": torch.randint(0, 2**62, (num_rows,)),
        "steps": torch.arange(num_rows),
    }
    draws["temperatures"][::5] = 0
    plain = token_sampling.sample_tokens(logits, **draws, codebook=2)
    ours = gpu("token_sampling").sample_tokens(
        there(logits), **{name: there(value) for name, value in draws.items()}, codebook=2
    )
    assert torch.equal(ours.cpu(), plain)


@on_gpu
@needs_triton
def test_embeddings_are_added() -> None:
    inputs, tokens, table = torch.randn(3, 4, 24), torch.tensor([0, 6, 2]), torch.randn(7, 24)
    ours = gpu("token_embedding").add_embedding(there(inputs)[:, 2], there(tokens), there(table))
    assert torch.equal(ours.cpu(), add_embedding(inputs[:, 2], tokens, table))


PRODUCTS = {
    "linear": ("x", "weight"),
    "linear_add": ("x", "weight", "residual"),
    "norm_linear": ("x", "alpha", "eps", "weight"),
    "norm_gated_linear": ("x", "alpha", "eps", "weight"),
    "layer_norm_linear": ("x", "alpha", "bias", "eps", "weight"),
    "layer_norm_linear_gelu": ("x", "alpha", "bias", "eps", "weight"),
}
"""Products and their arguments, as `product_inputs` names them."""

TILES = {
    "a row": (1, 16, 64, 1, 1),
    "two rows": (2, 16, 32, 1, 1),
    "four rows": (4, 16, 128, 1, 1),
    "sixteen": (16, 16, 32, 1, 2),
    "sixty-four": (64, 32, 64, 4, 2),
}


@on_gpu
@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_few_rows(name: str, tile: str, dtype: torch.dtype) -> None:
    if dtype != torch.float32 and ("layer" in name or (INTERPRETED and TILES[tile][0] > 4)):
        pytest.skip("never 16 bits, or the interpreter has no 16-bit matrix products")
    sizes = [(1, 16, 48), (5, 88, 20)] + [(66, 44, 32)] * (tile == "sixty-four")
    for num_rows, k, n in sizes:
        plain, ours = both_products(name, product_inputs(num_rows, k, n, dtype), tile)
        assert_close(ours, plain, within=tolerance(dtype))


@on_gpu
@needs_triton
@pytest.mark.parametrize("tile", ["two rows", "sixteen"])
@pytest.mark.parametrize("name", ["norm_gated_linear", "layer_norm_linear"])
def test_a_row_never_depends_on_its_neighbours(name: str, tile: str) -> None:
    inputs = product_inputs(4, 48, 16, torch.float32)
    alone = both_products(name, inputs, tile)[1]
    inputs["x"][1:] = 1e4 * torch.randn(3, 48)
    assert torch.equal(both_products(name, inputs, tile)[1][0], alone[0])


@on_gpu
@needs_triton
@pytest.mark.parametrize("num_rows", [1, 2, 7, 17])
def test_pinned_tiles_fit_every_shape(num_rows: int) -> None:
    for name in ("norm_gated_linear", "linear_add"):
        plain, ours = both_products(name, product_inputs(num_rows, 44, 16, torch.float32), None)
        assert_close(ours, plain, within=tolerance(torch.float32))


def product_inputs(num_rows: int, k: int, n: int, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "x": (torch.randn(num_rows, k) + 1).to(dtype),
        "weight": (torch.randn(2 * n, k) / k**0.5).to(dtype),
        "residual": torch.randn(num_rows, 2 * n).to(dtype),
        "alpha": torch.rand(k) + 0.5,
        "bias": torch.randn(k),
        "eps": 1e-5,
    }


def both_products(
    name: str, inputs: dict[str, Any], tile: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    arguments = [inputs[argument] for argument in PRODUCTS[name]]
    cut = gpu("linear_tiles").LinearTile(*TILES[tile]) if tile else None
    plain: Callable[..., torch.Tensor] = getattr(fused_linear, name)
    ours = getattr(gpu("fused_linear"), name)(*map(there, arguments), tile=cut)
    return plain(*arguments), ours


@on_gpu
@needs_triton
@pytest.mark.parametrize("context", [9, 10, 32])
def test_mimi_attention_through_a_whole_transformer(context: int) -> None:
    config = PersonaPlexMimiConfig(
        hidden_size=24, num_attention_heads=2, num_hidden_layers=1, context=context
    )
    layer = random_mimi_layer(width=24, hidden=40)
    plain = MimiTransformer(config, [layer], device=torch.device("cpu"))
    rings = torch.randn(1, 3, ring_entries(config), 2, 2, 12)
    our_rings = rings.to(DEVICE).clone()
    starts = [0, 2, context - 2, context - 1, context, context + 1, 5 * context]
    for start in starts:
        positions = start + torch.tensor([0, 4, 0])
        x = torch.randn(3, 2, 24)
        expected = plain.forward(x, rings, positions)
        ours = fused_mimi_layer(config, layer, there(x), our_rings, there(positions))
        assert_close(ours, expected, within=tolerance(torch.float32))
        assert_close(our_rings, rings, within=tolerance(torch.float32))


def random_mimi_layer(*, width: int, hidden: int) -> MimiTransformerLayer:
    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns) / columns**0.5

    def norm() -> tuple[torch.Tensor, torch.Tensor]:
        return 1 + 0.1 * torch.randn(width), 0.1 * torch.randn(width)

    return MimiTransformerLayer(
        *norm(), matrix(3 * width, width), matrix(width, width),
        *norm(), matrix(hidden, width), matrix(width, hidden),
    )  # fmt: skip


def fused_mimi_layer(
    config: PersonaPlexMimiConfig,
    layer: MimiTransformerLayer,
    x: torch.Tensor,
    rings: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """One layer with the attention kernel and plain products."""
    weights = [there(getattr(layer, field.name)) for field in dataclasses.fields(layer)]
    gain1, bias1, in_proj, out_proj, gain2, bias2, linear1, linear2 = weights
    absolute = positions.unsqueeze(1) + torch.arange(2, device=DEVICE)
    tables = rope_tables(absolute, head_dim=config.head_dim, max_period=config.rope_theta)
    eps, rows = config.norm_eps, x.flatten(0, 1)
    projected = F.linear(F.layer_norm(rows, gain1.shape, gain1, bias1, eps), in_proj)
    seen = gpu("mimi_attention").attend_pair(
        projected, *tables, positions, rings[0], context=config.context, num_warps=4
    )
    rows = rows + F.linear(seen, out_proj)
    hidden = F.gelu(F.linear(F.layer_norm(rows, gain2.shape, gain2, bias2, eps), linear1))
    return (rows + F.linear(hidden, linear2)).view_as(x)
