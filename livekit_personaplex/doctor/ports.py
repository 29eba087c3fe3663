"""Ports that a worker listens on."""

import socket

from livekit_personaplex.doctor.finding import Finding

HEALTH_PORT = 8081
"""Where a worker in production mode answers health checks, unless its code says otherwise."""


def check_ports(metrics_port: int | None, *, health_port: int = HEALTH_PORT) -> list[Finding]:
    """Check that the ports of a worker are free."""
    findings = [_check_port(health_port, "health checks", "PersonaPlexServer(port=...)")]
    if metrics_port is not None:
        findings.append(_check_port(metrics_port, "metrics", "PERSONAPLEX_METRICS"))
    return findings


def _check_port(port: int, purpose: str, setting: str) -> Finding:
    check = f"port {port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return Finding(
                check,
                "warning",
                f"{error.strerror}: it is for the worker's {purpose}",
                f"perhaps a worker runs already; otherwise choose another with {setting}",
            )
    return Finding(check, "ok", f"free for the worker's {purpose}")
