"""The life of an engine process: bind, load, announce, serve, end.

Exit codes: 0 stopped as asked, 3 the engine failed (the log says why). What a person can put right
(a setting, a checkpoint) is raised as an error of this package instead.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.engine import Engine
from livekit_personaplex.engine.listen_socket import ListenSocket
from livekit_personaplex.engine.nvidia_page import check_page
from livekit_personaplex.engine.opus import check_opus
from livekit_personaplex.engine.parent_watch import watch_parent
from livekit_personaplex.engine.recorder import check_folder
from livekit_personaplex.engine.server import EngineServer
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.log import logger
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress

EXIT_STOPPED = 0
EXIT_FAILED = 3


def run_engine(
    settings: EngineSettings,
    load: Callable[[], Core],
    *,
    announce: Callable[[EngineAddress], None],
    exit_with_parent: bool = False,
) -> int:
    """Serve until told to stop; blocks. To be called in the main thread of a process of its own.

    Args:
        settings: With an address to listen on.
        load: Makes the core; runs in the core's thread.
        announce: Called once sessions may come.
        exit_with_parent: End when standard input ends, and ignore SIGINT and SIGTERM. Otherwise
            these two signals end it.

    Returns:
        The exit code. A core that hangs leaves the process at once with this code instead.

    Raises:
        ConfigError: It cannot listen or record there, or a setting does not fit the model.
        CheckpointError: The model's files cannot be used.
        EngineStartError: Loading failed in another way; the log says how.
    """
    faulthandler.enable()
    return asyncio.run(_run(settings, load, announce, exit_with_parent))


async def _run(
    settings: EngineSettings,
    load: Callable[[], Core],
    announce: Callable[[EngineAddress], None],
    exit_with_parent: bool,
) -> int:
    if settings.listen is None:
        raise ConfigError("an engine needs an address to listen on: unix:PATH or HOST:PORT")
    if settings.nvidia_protocol:
        check_opus()
    if settings.nvidia_client_dir is not None:
        check_page(settings.nvidia_client_dir)
    if settings.record_dir is not None:
        check_folder(settings.record_dir)
    told_to_stop = _listen_for_stop(exit_with_parent)
    listen_socket = ListenSocket(settings.listen)
    engine = Engine(settings, load)
    server = EngineServer(
        engine,
        listen_socket,
        token=settings.token,
        nvidia_protocol=settings.nvidia_protocol,
        nvidia_client_dir=settings.nvidia_client_dir,
    )
    try:
        await server.start()
        if await _start(engine, told_to_stop):
            logger.info("engine ready", extra={"address": str(listen_socket.address)})
            announce(listen_socket.address)
            await _first_of(told_to_stop, engine.failed)
    finally:
        await server.stop()
        await _end_core(engine)
    return EXIT_STOPPED if engine.failure is None else EXIT_FAILED


async def _start(engine: Engine, told_to_stop: asyncio.Event) -> bool:
    """Load the core unless told to stop meanwhile; says whether it is there."""
    starting = asyncio.create_task(engine.start())
    stopping = asyncio.create_task(told_to_stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    return False


async def _end_core(engine: Engine) -> None:
    if await engine.finish_stop():
        return
    # Nobody can end a thread that hangs in a device call, nor leave Python in order beside it.
    if engine.failure is not None:
        faulthandler.dump_traceback()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(EXIT_STOPPED if engine.failure is None else EXIT_FAILED)


def _listen_for_stop(exit_with_parent: bool) -> asyncio.Event:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_from_thread() -> None:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(told_to_stop.set)

    if exit_with_parent:
        watch_parent(stop_from_thread, exit_code=EXIT_FAILED)
    else:
        loop.add_signal_handler(signal.SIGINT, told_to_stop.set)
        loop.add_signal_handler(signal.SIGTERM, told_to_stop.set)
    return told_to_stop


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
