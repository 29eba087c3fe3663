"""Starts an engine process, watches it, and starts it again when it dies or hangs.

No torch, no livekit.
"""

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from livekit_personaplex.errors import EngineError, EngineStartError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.engine_process import EngineProcess
from livekit_personaplex.wire.http import fetch_stats

STOP_TIMEOUT_S = 8.0
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
HEALTHY_S = 60.0
"""An engine that lived this long after it was ready is started again without more delay."""

PROBE_EVERY_S = 5.0
UNANSWERED_S = 30.0
"""An engine that has not answered for so long hangs: one whose device hangs says so much earlier,
by itself, and its calls have ended by now."""


class EngineState(Enum):
    """Life of a supervised engine."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"


class EngineSupervisor:
    """Owns one engine process.

    Attributes:
        state: What the engine is doing now.
        num_restarts: How often it was started again.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        name: str = "engine",
        on_state: Callable[[EngineState], None] = lambda state: None,
        start_timeout_s: float = 900.0,
        command: Callable[[EngineSettings], Sequence[str]] | None = None,
    ) -> None:
        """Make a supervisor; `start` starts the engine.

        Args:
            settings: The engine's. Without an address to listen on, it gets a Unix socket in a
                private folder of its own.
            name: What its lines are headed with in this process's log.
            on_state: Called on the loop at every change of `state`.
            start_timeout_s: From the start of the process to ready; loading a large model from a
                slow disk takes minutes.
            command: Gives the command line for settings; ``serve`` of this package by default.
        """
        self.state = EngineState.STOPPED
        self.num_restarts = 0
        self._settings = settings
        self._name = name
        self._on_state = on_state
        self._start_timeout_s = start_timeout_s
        self._command = command or serve_command
        self._folder: Path | None = None
        self._process: EngineProcess | None = None
        self._address: EngineAddress | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def address(self) -> EngineAddress:
        """Where the engine listens; known once `start` has returned, and kept over restarts."""
        assert self._address is not None, "start() first"
        return self._address

    @property
    def token(self) -> str | None:
        """The token that clients on TCP need."""
        return self._settings.token

    @property
    def pid(self) -> int | None:
        """Process id of the engine that runs now."""
        return None if self._process is None else self._process.pid

    async def start(self) -> EngineAddress:
        """Start the engine and wait until it takes sessions.

        Raises:
            EngineStartError: It ended or was not ready in time; with the last lines of its log.
                Nothing is left running.
        """
        assert self.state is EngineState.STOPPED, self.state
        self._set_state(EngineState.STARTING)
        try:
            await self._start_process()
        except BaseException:
            self._remove_folder()
            self._set_state(EngineState.STOPPED)
            raise
        self._set_state(EngineState.READY)
        self._watcher = asyncio.create_task(self._watch(), name="engine supervisor")
        return self.address

    async def stop(self) -> None:
        """End the engine: its sessions are told goodbye. Idempotent; takes less than 10 s."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait({self._watcher})
            self._watcher = None
        await self._stop_process()
        self._remove_folder()
        if self.state is not EngineState.STOPPED:
            self._set_state(EngineState.STOPPED)

    async def _start_process(self) -> None:
        settings = self._settings
        if settings.listen is None:
            settings = replace(settings, listen=self._private_address())
        elif self._address is not None:
            settings = replace(settings, listen=self._address)  # the port chosen at first
        self._process = await EngineProcess.spawn(
            self._command(settings), settings.child_environment(), name=self._name
        )
        try:
            self._address = await self._process.wait_ready(self._start_timeout_s)
        except BaseException:
            await self._stop_process()
            raise

    async def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop(STOP_TIMEOUT_S)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = FIRST_BACKOFF_S
        while True:
            assert self._process is not None
            ready_s = loop.time()
            code = await self._wait_for_end(self._process)
            logger.error(
                "the engine died and is started again",
                extra={"engine": self._name, "exit_code": code},
            )
            self._set_state(EngineState.RESTARTING)
            if loop.time() - ready_s > HEALTHY_S:
                backoff_s = FIRST_BACKOFF_S
            backoff_s = await self._restart(backoff_s)
            self.num_restarts += 1
            self._set_state(EngineState.READY)

    async def _wait_for_end(self, process: EngineProcess) -> int:
        """Wait until the engine ends; one that answers no more is killed. Gives the exit code."""
        loop = asyncio.get_running_loop()
        ended = asyncio.create_task(process.wait())
        answered_s = loop.time()
        try:
            while not (await asyncio.wait({ended}, timeout=PROBE_EVERY_S))[0]:
                if await self._answers():
                    answered_s = loop.time()
                elif loop.time() - answered_s > UNANSWERED_S:
                    logger.error(
                        "the engine does not answer and is killed",
                        extra={"engine": self._name, "pid": process.pid},
                    )
                    process.kill()
                    return await ended
            return ended.result()
        finally:
            ended.cancel()

    async def _answers(self) -> bool:
        try:
            await fetch_stats(self.address, token=self.token)
        except EngineError:
            return False
        except PersonaPlexError:
            pass  # an answer, if an odd one
        return True

    async def _restart(self, backoff_s: float) -> float:
        """Try until the engine is ready again; gives the delay before the next attempt."""
        while True:
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
            try:
                await self._start_process()
            except EngineStartError as error:
                logger.error("the engine did not start again: %s", error)
            else:
                return backoff_s

    def _set_state(self, state: EngineState) -> None:
        self.state = state
        self._on_state(state)

    def _private_address(self) -> EngineAddress:
        if self._folder is None:
            # The engine makes it, for its owner only, and removes it even when we are gone.
            name = f"personaplex-{secrets.token_urlsafe(8)}"
            self._folder = Path(tempfile.gettempdir()) / name
        return EngineAddress(unix_path=str(self._folder / "engine.sock"))

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def serve_command(settings: EngineSettings) -> list[str]:
    """Give the command line that serves `settings`; the token is not part of it."""
    options: dict[str, object] = {
        "--model": settings.model,
        "--slots": settings.slots,
        "--device": settings.device,
        "--dtype": settings.dtype,
        "--listen": settings.listen,
        "--voices": settings.voices_dir,
        "--record": settings.record_dir,
        "--kv": settings.kv,
        "--nvidia-client": settings.nvidia_client_dir,
        "--max-backlog-frames": settings.max_backlog_frames,
        "--tick-timeout-s": settings.tick_timeout_s,
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    if settings.nvidia_protocol:
        given.append("--nvidia-protocol")
    main = "livekit_personaplex.cli.main"
    return [sys.executable, "-m", main, "serve", *given, "--exit-with-parent"]
