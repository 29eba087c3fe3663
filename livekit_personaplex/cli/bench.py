"""``livekit-personaplex bench``: measure an engine."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.settings import DEVICES, EngineSettings
from livekit_personaplex.wire.address import EngineAddress

if TYPE_CHECKING:
    import torch

    from livekit_personaplex.model.personaplex import PersonaPlex

DESCRIPTION = """\
Measure an engine. The last line of standard output is one JSON document.

  ticks   whole ticks with full windows, back to back, for engines of several sizes
  open    calls opened beside others
  paced   many callers in real time on a running engine, from their side of the wire
  drift   logits of the fast path against plain float32
  start   from a checkpoint on disk to an engine that takes calls
  tune    how attention should be cut on this GPU

The model is random weights of the real size (random:7b) unless --model names another.
"""
_KV_CHOICES = ("bf16", "fp8", "f32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("what", choices=("ticks", "open", "paced", "drift", "start", "tune"), help="see above")
    add("--model", metavar="NAME", default="random:7b", help="folder, hub id, or random:7b")
    add("--device", choices=DEVICES, default="cuda", help="default: cuda")
    add("--json", type=Path, metavar="FILE", help="also write the JSON document there")
    add(
        "--engines",
        default="1:1:bf16,4:4:bf16,32:32:bf16,64:1:bf16,64:64:bf16,64:64:fp8,128:128:fp8",
        metavar="SLOTS:CALLS:KV,...",
        help="ticks, open: engines to measure, in this order",
    )
    add("--ticks", metavar="N", type=int, default=300, help="ticks: timed for each engine (300)")
    add("--openings", metavar="N", type=int, default=10, help="open: calls opened (10)")
    add("--engine", metavar="ADDRESS", help="paced: the running engine")
    add("--callers", metavar="N", type=int, default=64, help="paced: who talk at a time (64)")
    add("--duration-s", metavar="S", type=float, default=60.0, help="paced: for how long (60)")
    add("--mean-call-s", metavar="S", type=float, help="paced: callers leave after about so long")
    add("--leaving", metavar="N", type=int, help="paced: how many of them do so (all)")
    add(
        "--jitter-ms", metavar="MS", type=float, default=20.0, help="paced: lateness of frames (20)"
    )
    add("--steps", metavar="N", type=int, default=100, help="drift: steps compared (100)")
    add(
        "--folder", metavar="DIR", type=Path, help="start: a checkpoint is written and loaded there"
    )
    add("--tokenizer", metavar="FILE", type=Path, help="start: a SentencePiece model beside it")
    add("--slots", metavar="N", type=int, help="start: slots of the engine")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    measure = {
        "ticks": _ticks,
        "open": _openings,
        "paced": _paced,
        "drift": _drift,
        "start": _start,
        "tune": _tune,
    }[arguments.what]
    rows = [dict(row) for row in measure(arguments)]
    document = json.dumps({"what": arguments.what, "device": _device_name(arguments), "rows": rows})
    if arguments.json is not None:
        arguments.json.write_text(document + "\n", encoding="utf-8")
    _say(document)
    return 0


def _ticks(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    from livekit_personaplex.bench.figures import tick_table
    from livekit_personaplex.bench.ticks import make_core, measure_ticks

    model = _load_model(arguments)
    rows = []
    for slots, calls, kv in _engines(arguments.engines):
        core = make_core(model, num_slots=slots, kv_dtype=_kv_dtype(kv))
        rows.append(measure_ticks(core, calls=calls, num_ticks=arguments.ticks))
        del core
        _say(tick_table(rows[-1:]).splitlines()[-1])
    _say(tick_table(rows))
    return [row.as_json() for row in rows]


def _openings(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    from livekit_personaplex.bench.ticks import make_core, measure_openings

    model = _load_model(arguments)
    rows = []
    for slots, calls, kv in _engines(arguments.engines):
        core = make_core(model, num_slots=slots, kv_dtype=_kv_dtype(kv))
        row = measure_openings(core, live_calls=calls, num_openings=arguments.openings)
        rows.append({"slots": slots, "kv": kv, **row.as_json()})
        del core
        _say(str(rows[-1]))
    return rows


def _paced(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    from livekit_personaplex.bench.paced import PacedLoad, measure_paced

    if arguments.engine is None:
        raise ConfigError("bench paced needs a running engine: --engine ADDRESS")
    load = PacedLoad(
        address=EngineAddress.parse(arguments.engine),
        token=EngineSettings.from_env().token,
        callers=arguments.callers,
        duration_s=arguments.duration_s,
        mean_call_s=arguments.mean_call_s,
        leaving=arguments.leaving,
        jitter_ms=arguments.jitter_ms,
    )
    return [asyncio.run(measure_paced(load)).as_json()]


def _drift(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    import torch

    from livekit_personaplex.bench.drift import measure_drift
    from livekit_personaplex.kernels.fp8 import FP8
    from livekit_personaplex.model.config import PersonaPlexConfig
    from livekit_personaplex.model.random_model import random_source

    config = PersonaPlexConfig()
    figures = measure_drift(
        config,
        random_source(config, 0),
        device=torch.device(arguments.device),
        kv_dtypes=[torch.bfloat16, FP8],
        num_steps=arguments.steps,
    )
    return [row.as_json() for row in figures]


def _start(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    import torch

    from livekit_personaplex.bench.start import measure_start, write_random_checkpoint
    from livekit_personaplex.model.config import PersonaPlexConfig

    if arguments.folder is None or arguments.tokenizer is None:
        raise ConfigError("bench start needs --folder DIR and --tokenizer FILE")
    write_random_checkpoint(
        arguments.folder,
        arguments.tokenizer,
        device=torch.device(arguments.device),
        config=PersonaPlexConfig(),
    )
    settings = EngineSettings(
        model=str(arguments.folder),
        device=arguments.device,
        slots=arguments.slots,
        voices_dir=arguments.folder / "voices",
    )
    return [measure_start(settings).as_json()]


def _tune(arguments: argparse.Namespace) -> Iterable[Mapping[str, object]]:
    from livekit_personaplex.bench.tuning import tune_attention

    return tune_attention()


def _load_model(arguments: argparse.Namespace) -> "PersonaPlex":
    from livekit_personaplex.engine.core import load_model

    dtype = "bfloat16" if arguments.device == "cuda" else "float32"
    settings = EngineSettings(model=arguments.model, device=arguments.device, dtype=dtype)
    return load_model(settings)


def _engines(text: str) -> Iterable[tuple[int, int, str]]:
    for part in text.split(","):
        slots, _, rest = part.partition(":")
        calls, _, kv = rest.partition(":")
        if not (slots.isdecimal() and calls.isdecimal() and kv in _KV_CHOICES):
            raise ConfigError(
                f"--engines expects SLOTS:CALLS:KV with KV one of {', '.join(_KV_CHOICES)}, "
                f"got {part!r}"
            )
        yield int(slots), int(calls), kv


def _kv_dtype(name: str) -> "torch.dtype":
    import torch

    from livekit_personaplex.kernels.fp8 import FP8

    return {"bf16": torch.bfloat16, "fp8": FP8, "f32": torch.float32}[name]


def _device_name(arguments: argparse.Namespace) -> str:
    if arguments.what == "paced" or arguments.device == "cpu":
        return "cpu" if arguments.what != "paced" else "engine"
    import torch

    return torch.cuda.get_device_name()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
