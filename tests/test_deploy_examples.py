"""``examples/deploy``: held to linters, to schemas, and to what the package really has."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml
from livekit.agents import AgentServer
from livekit.agents.telemetry import metrics as livekit_metrics
from prometheus_client.metrics import MetricWrapperBase

from livekit_personaplex.cli.main import COMMANDS
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.engines import WorkerEngines
from livekit_personaplex.plugin.worker_metrics import WorkerMetrics
from livekit_personaplex.settings import EngineEndpoint, EngineSettings, worker_metrics_port
from livekit_personaplex.wire.histogram import Histogram
from livekit_personaplex.wire.metrics import engine_metrics
from livekit_personaplex.wire.protocol import HEALTH_PATH
from tests.test_plugin_server import stats

PROJECT = Path(__file__).resolve().parents[1]
DEPLOY = PROJECT / "examples" / "deploy"
YAML_FILES = sorted([*DEPLOY.glob("*.yaml"), *DEPLOY.glob("kubernetes/*.yaml")])
KUBERNETES_VERSION = "1.33"
CUSTOM_KINDS = {"PodMonitor"}
"""Not part of Kubernetes, so there is no schema of it here."""


def run_tool(name: str, *arguments: object) -> str:
    """Run a linter that the development dependencies bring; gives what it finds."""
    program = shutil.which(name, path=Path(sys.executable).parent)
    assert program is not None, f"{name} is missing; make setup installs it"
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def read_all(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    (document,) = read_all(DEPLOY / "kubernetes" / "deployment.yaml")
    return document


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    (document,) = read_all(DEPLOY / "compose.yaml")
    return document


def containers_of(deployment: dict[str, Any]) -> dict[str, dict[str, Any]]:
    pod = deployment["spec"]["template"]["spec"]
    return {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "secret") for entry in container.get("env", [])}


def test_yaml_passes_its_linter() -> None:
    run_tool("yamllint", "--strict", "--config-file", DEPLOY / ".yamllint.yaml", *YAML_FILES)


def test_the_container_file_passes_its_linter() -> None:
    run_tool("hadolint", DEPLOY / "Containerfile")


def test_the_container_file_copies_what_is_there_and_ignores_the_rest() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    copied = [
        name
        for line in re.findall(r"^COPY (.+)$", text, re.M)
        for name in line.split()[:-1]
        if not name.startswith("--")
    ]
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert set(copied) == kept and "agent.py" in kept
    assert all((PROJECT / name).exists() for name in kept)


def test_the_compose_file_fits_its_schema() -> None:
    run_tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("kubernetes/*.yaml")), ids=lambda p: p.name)
def test_manifests_fit_kubernetes_schemas(path: Path) -> None:
    for document in read_all(path):
        if document["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


def test_the_engine_is_a_sidecar_with_the_gpu_and_outlives_the_worker(
    deployment: dict[str, Any],
) -> None:
    containers = containers_of(deployment)
    assert containers["engine"]["restartPolicy"] == "Always"
    assert containers["engine"]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "worker" in {
        each["name"] for each in deployment["spec"]["template"]["spec"]["containers"]
    }
    for name in ("engine", "worker"):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert containers[name][probe]["httpGet"]["path"] in (HEALTH_PATH, "/")
        ports = {port["name"] for port in containers[name]["ports"]}
        assert containers[name]["readinessProbe"]["httpGet"]["port"] in ports
    assert containers["engine"]["readinessProbe"]["httpGet"]["path"] == HEALTH_PATH


def test_a_worker_that_is_told_to_end_has_time_to_drain(
    deployment: dict[str, Any], compose: dict[str, Any]
) -> None:
    drain_s = inspect.signature(AgentServer).parameters["drain_timeout"].default
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= drain_s + 60
    assert int(compose["services"]["worker"]["stop_grace_period"].rstrip("s")) >= drain_s + 60


def test_settings_and_commands_are_those_that_the_package_has(
    deployment: dict[str, Any], compose: dict[str, Any]
) -> None:
    environments = [environment_of(each) for each in containers_of(deployment).values()]
    commands = [each.get("command") for each in containers_of(deployment).values()]
    for service in ("engine", "worker"):
        raw = compose["services"][service]["environment"]
        environments.append({name: re.sub(r"\$\{.*\}", "", value) for name, value in raw.items()})
        commands.append(compose["services"][service].get("command"))
    for environment in environments:
        EngineSettings.each_from_env(environment)
        EngineEndpoint.each_from_env(environment)
        assert worker_metrics_port(environment) in (None, 9108)
    known = {command.name for command in COMMANDS}
    for command in commands:
        assert command is None or (command[0] == "livekit-personaplex" and command[1] in known)


def test_every_variable_of_the_compose_file_is_in_the_example(compose: dict[str, Any]) -> None:
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    example = (DEPLOY / "env.example").read_text(encoding="utf-8")
    assert used == set(re.findall(r"^(\w+)=", example, re.M))


def test_the_pod_monitor_scrapes_ports_that_the_pod_has(deployment: dict[str, Any]) -> None:
    (monitor,) = read_all(DEPLOY / "kubernetes" / "podmonitor.yaml")
    ports = {
        port["name"]
        for each in containers_of(deployment).values()
        for port in each.get("ports", [])
    }
    endpoints = monitor["spec"]["podMetricsEndpoints"]
    assert {endpoint["port"] for endpoint in endpoints} <= ports
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9108"


def known_samples() -> set[str]:
    """Names of all samples that engines, workers and LiveKit's workers show."""
    capacity = Capacity()
    histograms = dict.fromkeys(("tick_s", "open_s", "call_audio_s"), Histogram())
    capacity.update("cpu", replace(stats(), **histograms))
    engines = WorkerEngines(capacity, answer_timeout_s=1.0)
    worker = WorkerMetrics(capacity, engines, load=float)
    metrics = [*engine_metrics(capacity.engines), *worker.collect()]
    for value in vars(livekit_metrics).values():
        if isinstance(value, MetricWrapperBase):
            metrics += value.describe()
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    return {metric.name + suffix for metric in metrics for suffix in suffixes[metric.type]}


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    (alerts,) = read_all(DEPLOY / "alerts.yaml")
    found += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    return found


def test_every_query_is_promql_over_metrics_that_exist() -> None:
    known = known_samples()
    assert len(queries()) > 30
    for query in queries():
        promql_parser.parse(query.replace("$instance", ".*"))
        names = re.findall(r"\b(?:personaplex|lk_agents)_\w+", query)
        assert names and set(names) <= known, f"{query}: {set(names) - known}"


def test_every_metric_of_an_engine_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = " ".join(queries())
    for name in known_samples():
        if name.startswith("personaplex_"):
            base = re.sub(r"_(bucket|sum|count|total)$", "", name)
            assert base in shown, f"nobody sees {name}"


def test_panels_have_titles_ids_and_places_of_their_own() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_scrapes_reach_the_services_of_the_compose_file(compose: dict[str, Any]) -> None:
    (prometheus,) = read_all(DEPLOY / "prometheus.yaml")
    targets = [
        target
        for job in prometheus["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    ]
    services = compose["services"]
    assert {target.split(":")[0] for target in targets} <= services.keys()
    assert "worker:" + services["worker"]["environment"]["PERSONAPLEX_METRICS"] in targets
    assert services["engine"]["command"][-1].rpartition(":")[2] in targets[0]
