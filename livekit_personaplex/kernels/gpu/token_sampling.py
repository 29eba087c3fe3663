"""Drawing tokens in one launch; what it computes is said in ``token_sampling``.

The k-th largest logit is found without a sort: floats are mapped to integers of the same order,
whose bits are then settled from the highest down by counting how many logits reach a candidate.
"""

import torch
import triton
import triton.language as tl

from livekit_personaplex.kernels import token_sampling
from livekit_personaplex.kernels.gpu.overlap import can_overlap, overlap_options

_GOLDEN = tl.constexpr(token_sampling.GOLDEN)
_MIX_1 = tl.constexpr(token_sampling.MIX_1)
_MIX_2 = tl.constexpr(token_sampling.MIX_2)


@triton.jit
def _shift_right(x, BITS: tl.constexpr):
    return (x >> BITS) & ((1 << (64 - BITS)) - 1)


@triton.jit
def _mix(x):
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


@triton.jit
def _sample(
    logits, temperatures, top_ks, seeds, steps, out,
    CODEBOOK: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    ids = tl.arange(0, BLOCK)
    inside = ids < V
    wide = tl.load(logits + row * V + ids, mask=inside, other=float("-inf")).to(tl.float32)
    temperature = tl.load(temperatures + row)
    if temperature == 0:
        choice = tl.argmax(wide, axis=0)
    else:
        bits = wide.to(tl.int32, bitcast=True)
        ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
        wanted = tl.minimum(tl.load(top_ks + row), V)
        border = tl.full([], -2147483648, tl.int32)
        for bit in tl.static_range(31, -1, -1):
            if bit == 31:
                candidate = tl.full([], 0, tl.int32)
            else:
                candidate = border | (1 << bit)
            reached = tl.sum((inside & (ordered >= candidate)).to(tl.int32), axis=0)
            border = tl.where(reached >= wanted, candidate, border)
        seed = tl.load(seeds + row)
        step = tl.load(steps + row)
        key = _mix(_mix(seed + _GOLDEN) ^ _mix(step * 64 + (CODEBOOK + 1)))
        noise_bits = _mix(key + ids.to(tl.int64) * _GOLDEN)
        uniform = (_shift_right(noise_bits, 40).to(tl.float32) + 0.5) * (1.0 / 16777216.0)
        noisy = wide / temperature - tl.log(-tl.log(uniform))
        noisy = tl.where(inside & (ordered >= border), noisy, float("-inf"))
        choice = tl.argmax(noisy, axis=0)
    tl.store(out + row, choice.to(tl.int64))


def sample_tokens(
    logits: torch.Tensor,
    *,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor,
    seeds: torch.Tensor,
    steps: torch.Tensor,
    codebook: int,
) -> torch.Tensor:
    """See ``token_sampling.sample_tokens``."""
    rows, vocabulary = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    block = triton.next_power_of_2(vocabulary)
    overlap = can_overlap(logits)
    _sample[(rows,)](
        logits, temperatures, top_ks, seeds, steps, out,
        CODEBOOK=codebook, V=vocabulary, BLOCK=block, OVERLAP=overlap,
        num_warps=min(32, max(4, block // 1024)), **overlap_options(overlap),
    )  # fmt: skip
    return out
