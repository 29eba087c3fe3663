"""The socket an engine listens on: a Unix socket for its owner only, or TCP."""

import errno
import ipaddress
import os
import socket
import stat
from pathlib import Path

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.wire.address import EngineAddress

PROBE_TIMEOUT_S = 1.0


class ListenSocket:
    """A bound socket, and what has to be removed when it goes.

    Attributes:
        socket: The bound socket, not listening yet.
        address: Where clients reach it; a TCP port of 0 is resolved.
    """

    def __init__(self, address: EngineAddress) -> None:
        """Bind.

        A Unix socket gets mode 0600, a missing folder is made with mode 0700, and a socket that a
        dead engine left is replaced. Call it before other threads make files: it sets the umask
        for a moment.

        Raises:
            ConfigError: The address is in use or cannot be bound.
        """
        self._made_folder: Path | None = None
        self._identity: tuple[int, int] | None = None
        try:
            if address.is_unix:
                self.socket = self._bind_unix(Path(address.unix_path))
                self.address = address
            else:
                self.socket = _bind_tcp(address)
                port = self.socket.getsockname()[1]
                self.address = EngineAddress(host=address.host, port=port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from None

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine reach it."""
        if self.address.is_unix:
            return True
        return ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback

    def close(self) -> None:
        """Close the socket and remove its path, if it is still ours. Idempotent."""
        self.socket.close()
        if self._identity is None:
            return
        path = Path(self.address.unix_path)
        if _identity(path) == self._identity:
            path.unlink()
        if self._made_folder is not None:
            try:
                self._made_folder.rmdir()
            except OSError:
                pass  # something else lives there now
        self._identity = None

    def _bind_unix(self, path: Path) -> socket.socket:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            self._made_folder = path.parent
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        self._identity = _identity(path)
        return listener


def _bind_tcp(address: EngineAddress) -> socket.socket:
    family, kind, _, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on. Raises `ConfigError` for anything else there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"cannot listen on {path}: it exists and is not a socket; choose another")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        code = probe.connect_ex(str(path))
    if code != errno.ECONNREFUSED:
        raise ConfigError(
            f"cannot listen on {path}: an engine listens there; stop it, or choose another"
        )
    path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
