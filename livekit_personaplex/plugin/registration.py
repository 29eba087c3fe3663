"""Makes the plugin known to LiveKit: its logger gets the CLI's level, its package is preloaded."""

import subprocess
import sys
import threading

from livekit.agents import Plugin

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.log import logger
from livekit_personaplex.version import __version__


class PersonaPlexPlugin(Plugin):
    """LiveKit's record of this plugin."""

    def __init__(self) -> None:
        """Name the package that job processes load before a call comes."""
        package = "livekit_personaplex.plugin"
        super().__init__("livekit_personaplex", __version__, package, logger)

    def download_files(self) -> None:
        """Fetch the model's files, as ``livekit-personaplex download-files`` does. Blocks for long.

        Raises:
            CheckpointError: They cannot be had; the message says why.
        """
        # a process of its own: it needs packages that a process with jobs does not load
        command = [sys.executable, "-m", "livekit_personaplex.cli.main", "download-files"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["it ended without a word"]
            raise CheckpointError(lines[-1].removeprefix("livekit-personaplex: error: "))
        logger.info("the model's files are here")


def register() -> None:
    """Register with LiveKit, which takes plugins on the main thread only.

    On another thread nothing happens: then LiveKit has long started, and lacks only the preload.
    """
    if threading.current_thread() is threading.main_thread():
        Plugin.register_plugin(PersonaPlexPlugin())
