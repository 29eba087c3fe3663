"""Drawing tokens: temperature, top-k and counter-based noise, per row.

The noise of a draw is a function of (seed, step, codebook, token id) alone, so one seed gives one
conversation whoever else is in the batch. A draw is the arg-max of ``logits / T + gumbel`` over
the top k. The plain reference on CPU, one Triton launch on a GPU (``gpu.token_sampling``).

Legend: B rows, V vocabulary.
"""

import torch

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def gumbel_noise(
    seeds: torch.Tensor, steps: torch.Tensor, codebook: int, vocabulary: int
) -> torch.Tensor:
    """Gumbel noise for one draw of each row.

    Args:
        seeds: ``[B] int64``.
        steps: ``[B] int64``.
        codebook: Which draw of the step: 0 text, 1 and up audio.
        vocabulary: V.

    Returns:
        ``[B, V] float32``, finite.
    """
    row_keys = _mix(seeds + GOLDEN) ^ _mix(steps * 64 + (codebook + 1))
    ids = torch.arange(vocabulary, device=seeds.device, dtype=torch.int64)
    bits = _mix(_mix(row_keys).unsqueeze(1) + ids * GOLDEN)
    uniform = (_shift_right(bits, 40).to(torch.float32) + 0.5) * (1.0 / (1 << 24))
    return -torch.log(-torch.log(uniform))


def sample_tokens(
    logits: torch.Tensor,
    *,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor,
    seeds: torch.Tensor,
    steps: torch.Tensor,
    codebook: int,
) -> torch.Tensor:
    """Draw one token per row; a temperature of 0 takes the likeliest.

    Logits equal to the k-th largest are all kept, so ties at the border may admit more than k.

    Args:
        logits: ``[B, V]``, any float dtype; computed with in float32.
        temperatures: ``[B] float32``.
        top_ks: ``[B] int64``, clamped to V.
        seeds: ``[B] int64``.
        steps: ``[B] int64``.
        codebook: Which draw of the step.

    Returns:
        ``[B] int64``.
    """
    if logits.is_cuda:
        from livekit_personaplex.kernels.gpu import token_sampling as token_sampling_gpu

        return token_sampling_gpu.sample_tokens(
            logits,
            temperatures=temperatures,
            top_ks=top_ks,
            seeds=seeds,
            steps=steps,
            codebook=codebook,
        )
    wide = logits.to(torch.float32)
    vocabulary = wide.shape[1]
    kept = top_ks.clamp(1, vocabulary)
    descending = wide.topk(int(kept.max()), dim=1).values
    border = descending.gather(1, (kept - 1).unsqueeze(1))
    greedy = (temperatures == 0).unsqueeze(1)
    divisor = torch.where(greedy, 1.0, temperatures.unsqueeze(1))
    noise = gumbel_noise(seeds, steps, codebook, vocabulary)
    noisy = (wide / divisor + noise).masked_fill(wide < border, float("-inf"))
    return torch.where(greedy, wide, noisy).argmax(dim=1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finalizer of SplitMix64 on signed 64-bit lanes (wrapping products)."""
    x = (x ^ _shift_right(x, 30)) * MIX_1
    x = (x ^ _shift_right(x, 27)) * MIX_2
    return x ^ _shift_right(x, 31)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
