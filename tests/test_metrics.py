"""What an operator sees of engines and workers: metrics, one log line at a call's start and end."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from livekit.agents import JobContext, JobExecutorType
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from livekit_personaplex import PersonaPlexServer
from livekit_personaplex.errors import CapacityError, ConfigError
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.engines import WorkerEngines
from livekit_personaplex.plugin.worker_metrics import WorkerMetrics
from livekit_personaplex.settings import worker_metrics_port
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.histogram import Histogram, HistogramCounter
from livekit_personaplex.wire.http import fetch_stats, make_http_session
from livekit_personaplex.wire.stats import EngineStats
from tests.engine_harness import running_engine, talk
from tests.fake_engine import FakeEngine
from tests.fakes import FakeCore, user_frames

Samples = dict[str, float]


def parse(text: str) -> Samples:
    """Give every sample of a metrics page as ``name{label=value,...}``."""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, f"{family.name} does not say what it is"
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


async def read_metrics(address: EngineAddress, token: str | None = None) -> Samples:
    async with make_http_session(address, token) as http:
        async with http.get(address.url("/metrics"), raise_for_status=True) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            return parse(await response.text())


def test_a_histogram_counts_into_the_bucket_below_a_bound() -> None:
    counter = HistogramCounter((0.04, 0.08))
    for value in (0.01, 0.04, 0.05, 0.08, 0.0801, 7.0):
        counter.add(value)
    assert counter.read() == Histogram((0.04, 0.08), (2, 2, 2), pytest.approx(7.2601))


def test_an_engine_shows_its_slots_ticks_and_calls_as_metrics(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path, device="cpu", dtype="float32") as running:
            session = await running.open()
            await talk(session, user_frames(10))
            other = await running.open()
            with pytest.raises(CapacityError):
                await running.open()
            during = await read_metrics(running.address)
            await asyncio.gather(session.aclose(), other.aclose())
            await running.wait_unused()
            after = await read_metrics(running.address)
            ticks = (await fetch_stats(running.address)).ticks
        engine = "{engine=cpu}"
        assert during[f"personaplex_engine_ready{engine}"] == 1
        assert during[f"personaplex_slots{engine}"] == 2
        assert during[f"personaplex_load{engine}"] == 1.0
        assert during[f"personaplex_user_frames_total{engine}"] == 10
        assert during[f"personaplex_agent_frames_total{engine}"] >= 11
        assert during[f"personaplex_sessions_refused_total{engine}"] == 1
        assert after[f"personaplex_slots_used{engine}"] == 0
        assert after[f"personaplex_tick_seconds_count{engine}"] == ticks
        assert after["personaplex_tick_seconds_bucket{engine=cpu,le=0.08}"] <= ticks
        assert after["personaplex_tick_seconds_bucket{engine=cpu,le=+Inf}"] == ticks
        opened = after[f"personaplex_sessions_opened_total{engine}"]
        assert after[f"personaplex_open_seconds_count{engine}"] == opened
        assert after[f"personaplex_call_audio_seconds_count{engine}"] == opened
        frames = after[f"personaplex_agent_frames_total{engine}"]
        assert after[f"personaplex_call_audio_seconds_sum{engine}"] == pytest.approx(frames * 0.08)

    asyncio.run(run())


def test_metrics_on_tcp_need_the_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(
            FakeCore(), tmp_path, listen="127.0.0.1:0", token="secret"
        ) as running:
            with pytest.raises(aiohttp.ClientResponseError, match="401"):
                await read_metrics(running.address)
            assert await read_metrics(running.address, "secret")

    asyncio.run(run())


def test_an_engine_needs_no_prometheus_client_until_somebody_asks_for_metrics() -> None:
    code = (
        "import sys, livekit_personaplex.engine.process\n"
        "assert 'prometheus_client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_call_is_one_line_at_its_start_and_one_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> str:
        async with running_engine(FakeCore(), tmp_path) as running:
            session = await running.open(persona="You are Zoe.", seed=987)
            await talk(session, user_frames(3))
            await session.aclose()
            await running.wait_unused()
            return session.session_id

    with caplog.at_level(logging.INFO):
        session_id = asyncio.run(run())
    begun, ended = [record for record in caplog.records if "session" in vars(record)]
    assert (begun.message, begun.session) == ("session ready", session_id)
    assert begun.open_ms > 0 and begun.prompt_steps == 10
    assert (ended.message, ended.session) == ("session over", session_id)
    assert (ended.frames, ended.audio_s, ended.has_failed) == (4, 0.32, False)
    assert ended.duration_s * 1e3 > begun.open_ms
    told = " ".join(f"{record.message} {vars(record)}" for record in caplog.records)
    assert "Zoe" not in told


async def do_nothing(ctx: JobContext) -> None:
    """An entrypoint that is never reached."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def engine_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("PERSONAPLEX_", "LIVEKIT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PERSONAPLEX_ENGINE", f"unix:{tmp_path}/engine.sock")
    return tmp_path


async def read_worker_metrics(server: PersonaPlexServer, port: int) -> str:
    """Run a worker; gives what its port shows."""
    started = asyncio.Event()
    server.once("worker_started", started.set)
    running = asyncio.create_task(server.run(devmode=True, unregistered=True))
    await started.wait()
    async with aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
    await server.aclose()
    await running
    return text


def test_a_workers_own_port_shows_its_slots_beside_livekits_metrics(
    engine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("PERSONAPLEX_METRICS", str(port))

    async def run() -> Samples:
        server = PersonaPlexServer(
            job_executor_type=JobExecutorType.THREAD, num_idle_processes=0, host="127.0.0.1"
        )
        server.rtc_session(do_nothing, agent_name="personaplex")
        async with FakeEngine(engine_folder, slots=4):
            return parse(await read_worker_metrics(server, port))

    samples = asyncio.run(run())
    assert any(name.startswith("lk_agents_") for name in samples)
    assert samples["personaplex_worker_slots"] == 4
    assert samples["personaplex_worker_slots_used"] == 0
    assert samples["personaplex_worker_engines_ready"] == 1
    assert samples["personaplex_worker_load"] == 0
    assert samples["personaplex_worker_calls_refused_total"] == 0
    assert not any(name.startswith("personaplex_tick") for name in samples), "it has its own"
    left = [metric.name for metric in REGISTRY.collect() if metric.name.startswith("personaplex")]
    assert left == []


def test_a_worker_says_that_multi_process_metrics_lack_its_own(
    engine_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    monkeypatch.setenv("PERSONAPLEX_METRICS", str(port))
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(engine_folder / "metrics"))

    async def run() -> str:
        server = PersonaPlexServer(
            job_executor_type=JobExecutorType.THREAD, num_idle_processes=0, host="127.0.0.1"
        )
        server.rtc_session(do_nothing, agent_name="personaplex")
        async with FakeEngine(engine_folder, slots=4):
            return await read_worker_metrics(server, port)

    with caplog.at_level(logging.WARNING):
        text = asyncio.run(run())
    assert "personaplex" not in text
    assert any("multi-process mode" in record.message for record in caplog.records)


def test_a_worker_shows_the_metrics_of_the_engines_that_it_started() -> None:
    zeros: dict[str, float] = {
        name: 0 for name, field in EngineStats.__dataclass_fields__.items() if field.type is int
    } | dict.fromkeys(("tick_p50_ms", "tick_p99_ms", "tick_max_ms", "uptime_s"), 0.0)
    capacity = Capacity()
    for name, used in (("cuda:0", 1), ("cuda:1", 3)):
        stats = EngineStats(**zeros | {"slots": 4, "used": used}, ready=True)  # type: ignore[arg-type]
        capacity.update(name, stats)
    engines = WorkerEngines(capacity, answer_timeout_s=1.0)
    engines.are_ours = True
    metrics = WorkerMetrics(capacity, engines, load=lambda: 0.5)
    values = {
        (sample.name, sample.labels.get("engine")): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
        if not sample.name.endswith("_bucket")
    }
    assert values["personaplex_worker_slots_used", None] == 4
    assert values["personaplex_slots_used", "cuda:0"] == 1
    assert values["personaplex_load", "cuda:1"] == 0.75


def test_the_metrics_port_is_a_port() -> None:
    assert worker_metrics_port({}) is None
    assert worker_metrics_port({"PERSONAPLEX_METRICS": "9108"}) == 9108
    for wrong in ("many", "65536"):
        with pytest.raises(ConfigError, match="PERSONAPLEX_METRICS"):
            worker_metrics_port({"PERSONAPLEX_METRICS": wrong})
