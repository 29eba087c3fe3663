"""The two programs of ours that make a call: an engine, and a worker that answers with it."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.settings import child_environment

_REGISTERED = "registered worker"


def start_engine(arguments: Sequence[str], **settings: str) -> LoggedProcess:
    """Start ``livekit-personaplex serve``; returns at once.

    Args:
        arguments: Of the command.
        **settings: Environment variables to add.
    """
    command = [sys.executable, "-m", "livekit_personaplex.cli.main", "serve", *arguments]
    return LoggedProcess("engine", command, environment=child_environment(settings))


def start_worker(
    agent: Path,
    server: LiveKitCredentials,
    *,
    mode: str = "dev",
    settings: Mapping[str, str],
) -> LoggedProcess:
    """Start an agent's worker; returns at once.

    Args:
        agent: The agent's file, as in ``python agent.py start``.
        server: The LiveKit server it works for.
        mode: ``start`` or ``dev``.
        settings: Environment variables to add.
    """
    environment = child_environment(
        {
            "LIVEKIT_URL": server.url,
            "LIVEKIT_API_KEY": server.api_key,
            "LIVEKIT_API_SECRET": server.api_secret,
            **settings,
        }
    )
    return LoggedProcess("worker", [sys.executable, str(agent), mode], environment=environment)


def wait_until_registered(worker: LoggedProcess, *, timeout_s: float, after: int = 0) -> None:
    """Block until the worker takes calls.

    Raises:
        PersonaPlexError: It ended, or did not get there in time.
    """
    worker.wait_for(_REGISTERED, timeout_s=timeout_s, after=after)
