"""How ring attention should cut its work on the present GPU.

Times every cut over full rings at 64 rows, where memory bounds it, and at one row, where latency
does, and proposes the one whose worse share of the best is best. Pin the result in
``kernels/attention_tuning.json``.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace

import torch

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.kernels.attention_tuning import AttentionTuning
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.kernels.kv_rings import KvRings
from livekit_personaplex.kernels.ring_attention import attend_rings
from livekit_personaplex.kernels.rows import Rows

_HEADS, _HEAD_DIM, _CONTEXT, _CAPACITY, _LAYERS = 32, 128, 3000, 3128, 2
_ROWS = (64, 1)
_REPEATS = 5


def tune_attention() -> list[dict[str, object]]:
    """Time all cuts; gives one row for each dtype and cut, the proposed one first.

    Raises:
        ConfigError: There is no GPU.
    """
    if not torch.cuda.is_available():
        raise ConfigError("tuning measures a GPU and this machine has none")
    results: list[dict[str, object]] = []
    with torch.inference_mode():
        for kv_dtype in (torch.bfloat16, FP8):
            results += _tune_dtype(kv_dtype)
    return results


def _tune_dtype(kv_dtype: torch.dtype) -> list[dict[str, object]]:
    device = torch.device("cuda")
    shape = (_LAYERS, max(_ROWS), _HEADS, _CAPACITY, _HEAD_DIM)
    rings = KvRings.create(shape, dtype=kv_dtype, device=device)
    times = {cut: tuple(_time_ms(rings, cut, num_rows) for num_rows in _ROWS) for cut in _cuts()}
    best = tuple(min(row[index] for row in times.values()) for index in range(len(_ROWS)))
    ranked = sorted(
        times, key=lambda cut: max(ms / least for ms, least in zip(times[cut], best, strict=True))
    )
    name = "fp8" if kv_dtype == FP8 else "wide"
    return [
        {"kv": name, **asdict(cut), "ms_64_rows": times[cut][0], "ms_1_row": times[cut][1]}
        for cut in ranked
    ]


def _cuts() -> Iterator[AttentionTuning]:
    for block_keys in (16, 32, 64):
        for range_keys in (256, 512, 1024):
            for num_warps in (1, 2, 4):
                for num_stages in (1, 2, 3):
                    if 16 <= block_keys * _HEAD_DIM // (num_warps * 32) <= 256:
                        yield AttentionTuning(block_keys, range_keys, num_warps, num_stages)


def _time_ms(rings: KvRings, cut: AttentionTuning, num_rows: int) -> float:
    """Milliseconds of all 32 layers of the real model, from a few."""
    device = rings.keys.device
    layers = [replace(rings.layer(index), tuning=cut) for index in range(_LAYERS)]
    queries = torch.randn(num_rows, _HEADS, _HEAD_DIM, device=device, dtype=torch.bfloat16)
    rows = Rows(
        slots=torch.arange(num_rows, device=device),
        positions=torch.full((num_rows,), 2 * _CONTEXT, device=device),
        mask=torch.ones(num_rows, dtype=torch.bool, device=device),
    )

    def attend_all() -> None:
        for layer in layers:
            attend_rings(queries, rows, layer, context=_CONTEXT)

    attend_all()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(_REPEATS):
        attend_all()
    end.record()
    end.synchronize()
    return round(float(begin.elapsed_time(end)) / _REPEATS / _LAYERS * 32, 3)
