"""Whole ticks, back to back: what a call waits for, without sockets and clocks.

A tick is timed from PCM in host memory to PCM and tokens in host memory. Slots are put where a
long call stands (past the window, rings full) by writing their state, since speed does not depend
on what the rings hold. The floor of a tick on a GPU is memory: weights once, and every live slot's
keys and values once.
"""

import gc
import time
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.bench.figures import OpeningFigures, TickFigures, percentiles_ms
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.sizing import choose_sizes
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.personaplex import PersonaPlex
from livekit_personaplex.model.prompt import PromptPlan
from livekit_personaplex.sampling import Sampling

KV_NAMES = {FP8: "fp8", torch.bfloat16: "bf16", torch.float32: "f32"}
PERSONA_WORDS = 60
_WARM_UP_TICKS = 10
_DEVICE_TICKS = 20
_NUM_FRAMES = 8


def make_core(model: PersonaPlex, *, num_slots: int | None, kv_dtype: torch.dtype) -> EngineCore:
    """Make an engine around loaded weights, freeing what a former one held."""
    gc.collect()
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    sizes = choose_sizes(model.config, device=model.device, kv_dtype=kv_dtype, num_slots=num_slots)
    return EngineCore(model, sizes)


def bench_plan(core: EngineCore) -> PromptPlan:
    """A system prompt of the usual length: a voice, silences and a persona of 60 words."""
    return core.prepare(core.voices[0], " ".join(["word"] * PERSONA_WORDS))


def measure_ticks(core: EngineCore, *, calls: int, num_ticks: int) -> TickFigures:
    """Tick ``calls`` conversations with full windows, back to back.

    Args:
        core: Its slots are taken over.
        calls: How many of them are live.
        num_ticks: How many ticks are timed.
    """
    open_full(core, calls)
    frames = noise_frames()
    times_s = []
    for number in range(_WARM_UP_TICKS + num_ticks):
        pcm = next(frames)
        began_s = time.perf_counter()
        core.tick(dict.fromkeys(range(calls), pcm))
        if number >= _WARM_UP_TICKS:
            times_s.append(time.perf_counter() - began_s)
    p50_ms, p99_ms, max_ms = percentiles_ms(times_s)
    return TickFigures(
        calls=calls,
        slots=core.num_slots,
        kv=KV_NAMES[core.sizes.kv_dtype],
        window=core.model.config.temporal_config.context - 1,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        max_ms=max_ms,
        device_ms=_device_ms(core),
        num_ticks=num_ticks,
    )


def measure_openings(core: EngineCore, *, live_calls: int, num_openings: int) -> OpeningFigures:
    """Open calls beside others, each requested when a tick has just begun: the longest wait."""
    open_full(core, live_calls)
    frames = noise_frames()
    plan = bench_plan(core)
    usual_s, neighbours_s, ready_s = [], [], []

    def timed_tick() -> float:
        pcm = next(frames)
        began_s = time.perf_counter()
        core.tick(dict.fromkeys(range(live_calls), pcm))
        return time.perf_counter() - began_s

    for _ in range(num_openings):
        usual_s += [timed_tick() for _ in range(4)]
        requested_s = time.perf_counter()
        timed_tick()
        core.open(live_calls, plan, Sampling(seed=1))
        is_open = False
        while not is_open:
            began_s = time.perf_counter()
            is_open = live_calls in core.tick({}).opened
            if is_open:
                ready_s.append(time.perf_counter() - requested_s)
            timed_tick()
            neighbours_s.append(time.perf_counter() - began_s)
        core.close(live_calls)
    return OpeningFigures(
        live_calls=live_calls,
        prompt_steps=plan.num_positions,
        ready_ms=percentiles_ms(ready_s)[2],
        neighbour_tick_ms=percentiles_ms(neighbours_s)[2],
        usual_tick_ms=percentiles_ms(usual_s)[0],
    )


def open_full(core: EngineCore, calls: int) -> None:
    """Open ``calls`` slots and put them past the model's window, rings full of noise."""
    plan = bench_plan(core)
    for slot in range(calls):
        core.close(slot)
        core.open(slot, plan, Sampling(seed=slot))
    opened: set[int] = set()
    while len(opened) < calls:
        opened.update(core.tick({}).opened)
    lm, context = core.state.lm, core.model.config.temporal_config.context
    with torch.inference_mode():
        lm.offsets[:calls] = 2 * context
        core.state.encoder.positions[:calls] = 2 * context
        core.state.decoder.positions[:calls] = 2 * context
        fill_rings(core, calls)


def fill_rings(core: EngineCore, calls: int) -> None:
    """Fill the live slots' keys and values with noise of unit size."""
    rings = core.state.lm.rings
    for tensor, scales in (
        (rings.keys, rings.key_scales),
        (rings.values, rings.value_scales),
    ):
        noise = torch.randn(tensor.shape[2:], device=tensor.device, dtype=torch.float32)
        for layer in range(tensor.shape[0]):
            if scales is None:
                tensor[layer, :calls].copy_(noise)
            else:
                raw = (noise * 100).clamp(-448, 448).to(FP8).view(torch.uint8)
                tensor.view(torch.uint8)[layer, :calls].copy_(raw)
                scales[layer, :calls] = 0.01


def noise_frames() -> Iterator[NDArray[np.int16]]:
    """Endless user frames of noise."""
    rng = np.random.default_rng(0)
    frames = rng.normal(0, 3000, (_NUM_FRAMES, FRAME_SAMPLES)).astype(np.int16)
    while True:
        yield from frames


def _device_ms(core: EngineCore) -> float:
    """Milliseconds the device takes for a tick when nobody waits between ticks."""
    if core.model.device.type != "cuda":
        return 0.0
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    core.replay_live()
    begin.record()
    for _ in range(_DEVICE_TICKS):
        core.replay_live()
    end.record()
    end.synchronize()
    return round(float(begin.elapsed_time(end)) / _DEVICE_TICKS, 3)
