"""One engine process as its supervisor sees it: started, ready, ended. No torch, no livekit."""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from livekit_personaplex.errors import EngineStartError
from livekit_personaplex.log import logger
from livekit_personaplex.wire.address import EngineAddress

READY_PREFIX = "ready "
"""The engine writes this and its address on a line of standard output once it takes sessions."""
KEPT_LINES = 20
LOG_TIMEOUT_S = 1.0
CHUNK_BYTES = 65_536
MAX_LINE_CHARS = 4_096
LEVELS = {
    name: logging.getLevelName(name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}


class EngineProcess:
    """A child in a session of its own, which ends when its standard input does.

    So neither a Ctrl-C in our terminal nor a signal to our process group reaches it, and it ends
    when we die, however we die. What it logs goes into this process's log, line by line.
    """

    def __init__(self, process: asyncio.subprocess.Process, *, name: str) -> None:
        """Used by `spawn`."""
        self._process = process
        self._name = name
        self._ready: asyncio.Future[EngineAddress] = asyncio.get_running_loop().create_future()
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._readers = [
            asyncio.create_task(self._read_output(), name="engine stdout"),
            asyncio.create_task(self._read_log(), name="engine stderr"),
        ]

    @classmethod
    async def spawn(
        cls, command: Sequence[str], environment: Mapping[str, str], *, name: str = "engine"
    ) -> "EngineProcess":
        """Start a command in an environment; its lines in the log begin with `name`.

        Raises:
            EngineStartError: It cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            raise EngineStartError(f"cannot start {command[0]}: {error.strerror}") from None
        return cls(process, name=name)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def wait_ready(self, timeout_s: float) -> EngineAddress:
        """Wait until it takes sessions, and give the address it listens on.

        Raises:
            EngineStartError: It ended, or is not ready in time; with the last lines of its log.
        """
        ended = asyncio.create_task(self.wait())
        either: set[asyncio.Future[Any]] = {ended, self._ready}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            ended.cancel()
            return self._ready.result()
        if ended.done():
            what = f"the engine ended with exit code {ended.result()} before it was ready"
        else:
            ended.cancel()
            what = f"the engine was not ready within {timeout_s:g} s"
        raise EngineStartError("\n  ".join([f"{what}; its last words:", *self._last_lines]))

    async def wait(self) -> int:
        """Wait for its end and the rest of its log. Gives the exit code, negative for a signal."""
        code = await self._process.wait()
        # A process that it left behind may keep the pipes open; its log is not waited for.
        await asyncio.wait(self._readers, timeout=LOG_TIMEOUT_S)
        return code

    async def stop(self, timeout_s: float) -> None:
        """Close its input, which ends it; kill it when it is still there after `timeout_s`."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self.wait(), timeout_s)
        except asyncio.TimeoutError:
            logger.warning("the engine does not stop and is killed", extra={"pid": self.pid})
            self.kill()
            await self.wait()
        for reader in self._readers:
            reader.cancel()

    def kill(self) -> None:
        """End it, and what it has started, at once; `wait` gives its exit code."""
        with suppress(ProcessLookupError):  # it has ended just now
            os.killpg(self.pid, signal.SIGKILL)

    async def _read_output(self) -> None:
        async for line in _lines(self._process.stdout):
            if line.startswith(READY_PREFIX) and not self._ready.done():
                self._ready.set_result(EngineAddress.parse(line.removeprefix(READY_PREFIX)))
            else:
                logger.debug("%s: %s", self._name, line)

    async def _read_log(self) -> None:
        level = logging.INFO
        async for line in _lines(self._process.stderr):
            self._last_lines.append(line)
            level = LEVELS.get(line.split(" ", 1)[0], level)  # a traceback keeps its line's level
            logger.log(level, "%s: %s", self._name, line)


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    """Give the lines of a stream, cut to a sane length."""
    assert stream is not None
    rest = ""
    while chunk := await stream.read(CHUNK_BYTES):
        *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
        rest = rest[:MAX_LINE_CHARS]
        for line in lines:
            yield line[:MAX_LINE_CHARS].rstrip("\r")
    if rest:
        yield rest
