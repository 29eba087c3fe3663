"""``doctor``: each thing that can be wrong is said, with what to do about it."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors

from livekit_personaplex import recognizer
from livekit_personaplex.cli.main import main
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.doctor import devices
from livekit_personaplex.doctor.devices import Gpu, check_devices, judge_gpu
from livekit_personaplex.doctor.examination import check_persona
from livekit_personaplex.doctor.finding import Finding, has_failed, write_findings
from livekit_personaplex.doctor.installation import check_captions, check_packages, check_python
from livekit_personaplex.doctor.livekit_access import check_livekit, judge_address
from livekit_personaplex.doctor.model_files import check_model
from livekit_personaplex.doctor.ports import check_ports
from livekit_personaplex.doctor.running_engines import check_engines
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.settings import EngineEndpoint, EngineSettings, LiveKitSettings
from livekit_personaplex.wire.address import EngineAddress
from tests.fake_engine import FakeEngine

TINY16 = Path(__file__).parent / "data" / "tiny16" / "checkpoint"
REPO = "nvidia/personaplex-7b-v1"
WEIGHTS_BYTES = 16_700_000_000
H200 = Gpu(
    device="cuda:0",
    name="NVIDIA H200",
    capability=(9, 0),
    free_bytes=149_000_000_000,
    total_bytes=150_000_000_000,
)
SMALL = replace(H200, name="NVIDIA L4", free_bytes=24_000_000_000, total_bytes=24_200_000_000)


def judge(gpu: Gpu, **settings: object) -> Finding:
    (finding,) = judge_gpu(
        gpu,
        EngineSettings(**settings),  # type: ignore[arg-type]
        PersonaPlexConfig(),
        WEIGHTS_BYTES,
    )
    return finding


def only(findings: list[Finding], check: str) -> Finding:
    (finding,) = [finding for finding in findings if finding.check == check]
    return finding


def test_a_gpu_is_told_with_the_conversations_that_fit() -> None:
    finding = judge(H200)
    assert finding.state == "ok"
    assert "NVIDIA H200, compute capability 9.0, 149.0 of 150.0 GB free" in finding.text
    words = finding.text.split()
    bf16, fp8 = int(words[words.index("conversations") - 1]), int(words[words.index("with") - 1])
    assert 70 < bf16 < 85 and 1.8 * bf16 < fp8 < 2.1 * bf16


def test_more_slots_than_fit_a_gpu_are_a_failure_that_says_what_would_help() -> None:
    asked = judge(SMALL, slots=5)
    assert asked.state == "failure" and "5 are asked for" in asked.text
    assert "PERSONAPLEX_KV=fp8" in asked.advice
    assert judge(SMALL, slots=5, kv="fp8").state == "ok"


def test_a_gpu_that_somebody_else_fills_is_told_as_that() -> None:
    finding = judge(replace(SMALL, free_bytes=3_000_000_000))
    assert finding.state == "failure" and "nvidia-smi" in finding.advice


def test_a_gpu_without_bfloat16_is_too_old() -> None:
    finding = judge(replace(SMALL, capability=(7, 5)))
    assert finding.state == "failure" and "too old" in finding.text and "Ampere" in finding.advice


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("cuda", "told"), [(None, "built without CUDA"), ("13.2", "no NVIDIA GPU can be used")]
)
def test_a_missing_gpu_is_told_once_and_why(
    cuda: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    each = [EngineSettings(device=device) for device in ("cuda:0", "cuda:1")]
    (finding,) = check_devices(each, PersonaPlexConfig(), WEIGHTS_BYTES)
    assert finding.state == "failure" and told in finding.text
    assert "PERSONAPLEX_DEVICE=cpu" in finding.advice


def test_a_cpu_is_enough_for_a_small_model_and_told_to_be_slow_for_the_real_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "_free_memory_bytes", lambda: 64_000_000_000)
    cpu = [EngineSettings(device="cpu", dtype="float32")]
    assert check_devices(cpu, PersonaPlexConfig(), 5_000_000)[0].state == "ok"
    assert check_devices(cpu, PersonaPlexConfig(), WEIGHTS_BYTES)[0].state == "warning"
    monkeypatch.setattr(devices, "_free_memory_bytes", lambda: 8_000_000_000)
    assert check_devices(cpu, PersonaPlexConfig(), WEIGHTS_BYTES)[0].state == "failure"


def test_a_folder_with_a_whole_checkpoint_is_told_with_its_voices() -> None:
    model = check_model(EngineSettings(model=str(TINY16)))
    assert [finding.state for finding in model.findings] == ["ok", "ok"]
    assert "TINY0" in only(model.findings, "voices").text
    assert model.weights_bytes is not None and model.weights_bytes > 100_000


def test_a_folder_that_lacks_a_file_is_a_failure_that_names_it(tmp_path: Path) -> None:
    shutil.copytree(TINY16, tmp_path / "model")
    (tmp_path / "model" / "voices.tgz").unlink()
    settings = EngineSettings(model=str(tmp_path / "model"))
    finding = only(check_model(settings).findings, "model")
    assert finding.state == "failure" and "has no voices.tgz" in finding.text
    with_own_voices = check_model(replace(settings, voices_dir=tmp_path))
    assert only(with_own_voices.findings, "model").state == "ok"
    assert "NAME.wav" in only(with_own_voices.findings, "voices").advice


def test_a_broken_archive_of_voices_is_a_failure(tmp_path: Path) -> None:
    shutil.copytree(TINY16, tmp_path / "model")
    archive = tmp_path / "model" / "voices.tgz"
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    findings = check_model(EngineSettings(model=str(tmp_path / "model"))).findings
    assert only(findings, "voices").state == "failure"


def refuse(error: Exception) -> object:
    def ask(url: str) -> None:
        assert url.endswith(f"/{REPO}/resolve/main/model.safetensors")
        raise error

    return ask


@pytest.mark.parametrize(
    ("error", "token", "advice"),
    [
        (errors.GatedRepoError, None, f"accept its licence at https://huggingface.co/{REPO}"),
        (errors.GatedRepoError, "hf_x", "has no access to"),
        (errors.OfflineModeIsEnabled, None, "HF_HUB_OFFLINE"),
        (ConnectionError, None, "check the network"),
    ],
)
def test_a_model_that_the_hub_does_not_give_out_is_told_in_the_hubs_sentence(
    error: type[Exception], token: str | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = SimpleNamespace(status_code=403, headers={}, request=None, text="")
    raised = error("no", response=response) if error is errors.GatedRepoError else error("no")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repo, name: None)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse(raised))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: token)
    (finding,) = check_model(EngineSettings(model=REPO)).findings
    assert finding.state == "failure" and advice in finding.advice
    assert f"5 files of {REPO} are not here" in finding.text


def test_a_model_that_can_be_downloaded_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repo, name: None)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda url: None)
    usage = SimpleNamespace(free=100_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    (finding,) = check_model(EngineSettings(model=REPO)).findings
    assert finding.state == "warning" and "download-files" in finding.advice
    usage.free = 5_000_000_000
    (finding,) = check_model(EngineSettings(model=REPO)).findings
    assert finding.state == "failure" and "5.0 GB of disk are free" in finding.text


def test_a_model_that_is_nothing_is_a_failure() -> None:
    (finding,) = check_model(EngineSettings(model="/nowhere")).findings
    assert finding.state == "failure" and "/nowhere" in finding.text


def test_engines_that_run_already_are_asked(tmp_path: Path) -> None:
    async def run() -> list[Finding]:
        async with FakeEngine(tmp_path, slots=3) as engine:
            gone = EngineAddress(unix_path=str(tmp_path / "gone.sock"))
            endpoints = [EngineEndpoint(address=each) for each in (engine.address, gone)]
            return await check_engines(endpoints)

    there, gone = asyncio.run(run())
    assert there.state == "ok" and "0 of 3 slots in use" in there.text
    assert gone.state == "failure" and "livekit-personaplex serve" in gone.advice


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        health, metrics = check_ports(port, health_port=port)
        assert {health.state, metrics.state} == {"warning"}
        assert "PERSONAPLEX_METRICS" in metrics.advice
    assert check_ports(None, health_port=port)[0].state == "ok"


def test_an_unsupported_python_and_a_missing_package_are_failures() -> None:
    assert check_python((3, 12))[0].state == "ok"
    assert check_python((3, 9))[0].state == check_python((3, 14))[0].state == "failure"
    found, missing = check_packages(("pytest", "no-such-package"))
    assert "pytest" in found.text and missing.advice == "pip install no-such-package"


def test_captions_that_cannot_be_had_fail_only_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recognizer, "find_spec", lambda name: None)
    (unused,) = check_captions(is_wanted=False)
    (wanted,) = check_captions(is_wanted=True)
    assert (unused.state, wanted.state) == ("skipped", "failure")
    assert recognizer.INSTALL in unused.advice and wanted.advice == recognizer.INSTALL


def test_a_persona_is_looked_at_and_not_repeated() -> None:
    assert check_persona("You enjoy having a good conversation.")[0].state == "ok"
    remarks = check_persona("Zoe is **helpful**.")
    assert {remark.state for remark in remarks} == {"warning"}
    assert "Zoe" not in write_findings(remarks)


def test_livekits_variables_that_are_not_set_are_named() -> None:
    settings = LiveKitSettings.from_env({"LIVEKIT_URL": "ws://127.0.0.1:1"})
    (finding,) = asyncio.run(check_livekit(settings))
    assert finding.text == "LIVEKIT_API_KEY, LIVEKIT_API_SECRET not set"


def test_a_server_that_is_not_there_is_told_and_its_address_judged() -> None:
    settings = LiveKitSettings(url="ws://127.0.0.1:9", api_key="key", api_secret="s" * 32)
    access, browsers = asyncio.run(check_livekit(settings))
    assert access.state == "failure" and "cannot be reached" in access.text
    assert browsers.state == "ok" and "localhost" in browsers.text


def test_an_address_that_is_none_is_told_as_that() -> None:
    settings = LiveKitSettings(url="ws://[", api_key="key", api_secret="s" * 32)
    (finding,) = asyncio.run(check_livekit(settings))
    assert finding.state == "failure" and finding.text.startswith("LIVEKIT_URL is no address")


@pytest.mark.room
def test_a_real_server_takes_good_keys_and_tells_its_version(livekit: LiveKitCredentials) -> None:
    good = LiveKitSettings(url=livekit.url, api_key=livekit.api_key, api_secret=livekit.api_secret)
    access, workers, _ = asyncio.run(check_livekit(good))
    assert (access.state, workers.state) == ("ok", "ok")
    assert workers.text.startswith("can register; livekit-server 1.")
    wrong, *_ = asyncio.run(check_livekit(replace(good, api_secret="x" * 40)))
    assert wrong.state == "failure" and "refuses the keys" in wrong.text
    assert good.api_secret not in write_findings([access, workers, wrong])


def test_a_page_gets_a_microphone_only_over_tls_or_on_this_machine() -> None:
    for url, state in (("wss://lk.example.com", "ok"), ("ws://192.0.2.7:7880", "warning")):
        finding = judge_address(url)
        assert finding.state == state and "microphone" in finding.text


def test_findings_are_written_with_what_to_do_below_them() -> None:
    findings = [Finding("python", "ok", "3.11"), Finding("gpu", "failure", "none", "buy one")]
    assert has_failed(findings) and not has_failed(findings[:1])
    first, second, third = write_findings(findings).splitlines()
    assert first.split() == ["ok", "python", "3.11"]
    assert second.split() == ["failure", "gpu", "none"] and third.strip() == "-> buy one"


def doctor(**environment: str) -> subprocess.CompletedProcess[str]:
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERSONAPLEX_", "LIVEKIT_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "livekit_personaplex.cli.main", "doctor", "--json"],
        env={**ours, "PERSONAPLEX_DEVICE": "cpu", "PERSONAPLEX_MODEL": str(TINY16), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.room
def test_the_command_is_well_with_a_model_and_a_server(
    livekit: LiveKitCredentials,
) -> None:
    well = doctor(
        LIVEKIT_URL=livekit.url,
        LIVEKIT_API_KEY=livekit.api_key,
        LIVEKIT_API_SECRET=livekit.api_secret,
    )
    assert (well.returncode, well.stderr) == (0, "")
    document = json.loads(well.stdout)
    assert document["ok"] is True
    checks = [finding["check"] for finding in document["findings"]]
    assert [name for name in ("python", "cpu", "model", "voices", "livekit") if name in checks] == [
        "python",
        "cpu",
        "model",
        "voices",
        "livekit",
    ]


def test_a_setting_that_cannot_be_used_is_a_finding() -> None:
    done = doctor(PERSONAPLEX_SLOTS="many")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (1, False)
    assert document["findings"][-1]["check"] == "settings"


def test_files_that_are_here_are_not_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERSONAPLEX_MODEL", str(TINY16))
    assert main(["download-files"]) == 0
    assert capsys.readouterr().out == f"{TINY16}\n"
    assert main(["download-files", "--model", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err
