"""All checks, in the order in which a person would put things right."""

import asyncio
from collections.abc import Callable

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.doctor.installation import check_captions, check_packages, check_python
from livekit_personaplex.doctor.livekit_access import check_livekit
from livekit_personaplex.doctor.ports import check_ports
from livekit_personaplex.doctor.running_engines import check_engines
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.log import logger
from livekit_personaplex.persona import lint_persona
from livekit_personaplex.settings import (
    EngineEndpoint,
    EngineSettings,
    LiveKitSettings,
    local_captions_wanted,
    worker_metrics_port,
)


def examine(persona: str | None = None) -> list[Finding]:
    """Run every check; blocks for seconds. No finding has a token or a secret in it.

    Args:
        persona: To look at too; no finding repeats it.
    """
    findings = [*check_python(), *check_packages()]
    try:
        endpoints, each = EngineEndpoint.each_from_env(), EngineSettings.each_from_env()
        metrics_port, has_captions = worker_metrics_port(), local_captions_wanted()
    except ConfigError as error:
        advice = "correct the variable; livekit-personaplex serve --help lists them"
        return [*findings, Finding("settings", "failure", str(error), advice)]
    findings += _guarded("captions", lambda: check_captions(is_wanted=has_captions))
    if endpoints:
        findings += _guarded("engine", lambda: asyncio.run(check_engines(endpoints)))
    else:
        findings += _guarded("model", lambda: _check_own_engines(each))
    findings += _guarded("ports", lambda: check_ports(metrics_port))
    findings += _guarded("livekit", lambda: asyncio.run(check_livekit(LiveKitSettings.from_env())))
    if persona is not None:
        findings += check_persona(persona)
    return findings


def check_persona(persona: str) -> list[Finding]:
    """Say what may disappoint about a persona."""
    remarks = lint_persona(persona)
    if not remarks:
        return [Finding("persona", "ok", "it has a form that the model was trained with")]
    return [Finding("persona", "warning", remark.message) for remark in remarks]


def _check_own_engines(each: list[EngineSettings]) -> list[Finding]:
    """Check model and devices; what is imported here is what an engine needs."""
    from livekit_personaplex.doctor.devices import REAL_WEIGHTS_BYTES, check_devices
    from livekit_personaplex.doctor.model_files import check_model

    model = check_model(each[0])
    weights_bytes = model.weights_bytes or REAL_WEIGHTS_BYTES
    return [*check_devices(each, model.config, weights_bytes), *model.findings]


def _guarded(check: str, run: Callable[[], list[Finding]]) -> list[Finding]:
    """Run one check; if it breaks, that is its finding, and the others still run."""
    try:
        return run()
    except Exception as error:
        logger.debug("a check broke", exc_info=True)
        advice = "install the package anew; if that does not help, report this line"
        return [Finding(check, "failure", f"the check broke: {error!r}", advice)]
