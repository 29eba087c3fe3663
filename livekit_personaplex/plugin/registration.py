"""Makes the plugin known to LiveKit: its logger gets the CLI's level, its package is preloaded."""

import threading

from livekit.agents import Plugin

from livekit_personaplex.log import logger
from livekit_personaplex.version import __version__


class PersonaPlexPlugin(Plugin):
    """LiveKit's record of this plugin."""

    def __init__(self) -> None:
        """Name the package that job processes load before a call comes."""
        package = "livekit_personaplex.plugin"
        super().__init__("livekit_personaplex", __version__, package, logger)


def register() -> None:
    """Register with LiveKit, which takes plugins on the main thread only.

    On another thread nothing happens: then LiveKit has long started, and lacks only the preload.
    """
    if threading.current_thread() is threading.main_thread():
        Plugin.register_plugin(PersonaPlexPlugin())
