"""The benchmarks measure what they say, on small models and a CPU."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import torch

from livekit_personaplex.bench.drift import measure_drift
from livekit_personaplex.bench.figures import TickFigures, percentiles_ms, tick_table
from livekit_personaplex.bench.paced import PacedLoad, measure_paced
from livekit_personaplex.bench.start import measure_start, write_random_checkpoint
from livekit_personaplex.bench.ticks import make_core, measure_openings, measure_ticks
from livekit_personaplex.cli.main import main
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.config import load_config
from livekit_personaplex.model.random_model import random_source
from livekit_personaplex.settings import EngineSettings
from tests.conformance import DATA, load_model
from tests.engine_harness import running_engine
from tests.fakes import FakeCore

CPU = torch.device("cpu")
CHECKPOINT = DATA / "tiny8" / "checkpoint"


def test_ticks_are_timed_with_full_windows() -> None:
    core = make_core(load_model("tiny8"), num_slots=2, kv_dtype=torch.float32)
    figures = measure_ticks(core, calls=1, num_ticks=5)
    assert (figures.calls, figures.slots, figures.kv, figures.window) == (1, 2, "f32", 23)
    assert 0 < figures.p50_ms <= figures.p99_ms <= figures.max_ms
    assert int(core.state.lm.offsets[0]) > 24
    assert int(core.state.lm.offsets[1]) == 0, "a slot that is not live does not move"


def test_openings_are_timed_beside_live_calls() -> None:
    core = make_core(load_model("tiny8"), num_slots=2, kv_dtype=torch.float32)
    figures = measure_openings(core, live_calls=1, num_openings=2)
    assert figures.prompt_steps > 60
    assert figures.ready_ms > figures.usual_tick_ms > 0


def test_drift_of_8_bit_rings_is_larger_than_that_of_16_bits_and_still_small() -> None:
    config = load_config(CHECKPOINT)
    figures = measure_drift(
        config,
        random_source(config, 0),
        device=CPU,
        kv_dtypes=[torch.bfloat16, FP8],
        num_steps=12,
    )
    text = {row.kv: row for row in figures if row.head == "text"}
    assert 0 < text["bf16"].mean_abs < text["fp8"].mean_abs < 0.2 * text["bf16"].spread
    assert {row.num_draws for row in figures} == {12, 96}


def test_a_random_checkpoint_starts_an_engine(tmp_path: Path) -> None:
    config = load_config(CHECKPOINT)
    write_random_checkpoint(
        tmp_path, CHECKPOINT / "tokenizer_spm_32k_3.model", device=CPU, config=config
    )
    settings = EngineSettings(
        model=str(tmp_path), device="cpu", dtype="float32", slots=2, voices_dir=tmp_path / "voices"
    )
    figures = measure_start(settings)
    assert (figures.slots, figures.peak_gb) == (2, 0.0)
    assert figures.ready_s > 0


def test_paced_callers_come_and_go_on_a_running_engine(tmp_path: Path) -> None:
    async def measure() -> None:
        async with running_engine(FakeCore(num_slots=2), tmp_path) as running:
            load = PacedLoad(
                address=running.address,
                token=None,
                callers=2,
                duration_s=2.0,
                mean_call_s=0.5,
                leaving=1,
                jitter_ms=5.0,
                persona_words=3,
            )
            figures = await measure_paced(load)
        assert figures.calls >= 2 and figures.failed == figures.refused == 0
        assert figures.frames >= 30 and figures.p50_ms < 80 and figures.past_window == 0
        assert figures.calls == 2 or figures.open_p50_ms > 0, "the second call of who leaves"
        assert figures.first_open_max_ms > 0

    asyncio.run(measure())


def test_a_stall_is_told_with_the_second_in_which_it_was(tmp_path: Path) -> None:
    def stall(tick: int) -> None:
        if tick == 20:
            time.sleep(0.3)

    async def measure() -> None:
        async with running_engine(FakeCore(num_slots=1, on_tick=stall), tmp_path) as running:
            load = PacedLoad(
                address=running.address,
                token=None,
                callers=1,
                duration_s=3.5,
                mean_call_s=None,
                jitter_ms=0.0,
                persona_words=3,
            )
            figures = await measure_paced(load)
        assert figures.max_ms > 80 and figures.missed_deadlines >= 1
        # tick 20 is 1.6 s after a start that takes up to 0.2 s
        assert figures.missed_at_s and set(figures.missed_at_s) <= {1, 2}

    asyncio.run(measure())


def test_the_command_prints_a_table_and_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "ticks.json"
    arguments = ["--device", "cpu", "--model", str(CHECKPOINT), "--engines", "1:1:f32"]
    assert main(["bench", "ticks", *arguments, "--ticks", "3", "--json", str(written)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == json.loads(written.read_text())
    assert json.loads(lines[-1])["rows"][0]["calls"] == 1


def test_engines_that_cannot_be_read_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cpu", "--model", str(CHECKPOINT), "--engines", "1:1:int3"]
    assert main(["bench", "ticks", *arguments]) == 2
    assert "SLOTS:CALLS:KV" in capsys.readouterr().err


def test_percentiles_and_shares_are_of_milliseconds() -> None:
    assert percentiles_ms([0.001, 0.002, 0.009]) == (2.0, 8.86, 9.0)
    row = TickFigures(
        calls=1, slots=1, kv="bf16", window=9, p50_ms=10, p99_ms=11, max_ms=12, device_ms=9,
        num_ticks=3,
    )  # fmt: skip
    assert row.idle_share == pytest.approx(0.1)
    assert "10.00" in tick_table([row])
