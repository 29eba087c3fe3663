"""Where an engine listens: a Unix socket or a TCP port."""

import os
from dataclasses import dataclass

from livekit_personaplex.errors import ConfigError

MAX_UNIX_PATH_BYTES = 107
"""What Linux's ``sockaddr_un`` holds, less its end mark."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Address of an engine. ``str()`` of it parses to it again.

    Attributes:
        unix_path: Path of the Unix socket; empty for TCP.
        host: Host name or IP of a TCP address; empty for a Unix socket.
        port: TCP port; 0 lets a listening engine choose one.
    """

    unix_path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "EngineAddress":
        """Read ``unix:PATH``, ``HOST:PORT`` or ``http://HOST:PORT``.

        IPv6 hosts stand in brackets: ``[::1]:8700``.

        Raises:
            ConfigError: It is none of these.
        """
        if text.startswith("unix:"):
            return cls(unix_path=_check_unix_path(text.removeprefix("unix:")))
        host, colon, port = text.removeprefix("http://").rstrip("/").rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
        if not (colon and host and is_port) or set(host) & set("/@?# "):
            raise ConfigError(
                f"an engine's address is unix:PATH, HOST:PORT or http://HOST:PORT, got {text!r}"
            )
        return cls(host=host, port=int(port))

    @property
    def is_unix(self) -> bool:
        """Whether this is a Unix socket."""
        return bool(self.unix_path)

    def url(self, path: str) -> str:
        """URL of an HTTP path on this engine; a Unix socket has a placeholder as its host."""
        return f"http://{'engine' if self.is_unix else self._netloc}{path}"

    @property
    def _netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.unix_path}" if self.is_unix else self._netloc


def _check_unix_path(path: str) -> str:
    if not path or "\0" in path:
        raise ConfigError("unix: needs the path of a socket, as in unix:/run/personaplex.sock")
    if (num_bytes := len(os.fsencode(path))) > MAX_UNIX_PATH_BYTES:
        raise ConfigError(
            f"the path of a Unix socket may take {MAX_UNIX_PATH_BYTES} bytes, got {num_bytes}; "
            "choose a shorter one"
        )
    return path
