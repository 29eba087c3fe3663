"""A livekit-server of our own: loopback only, its own free ports, fresh keys.

`--dev` is not used, for it opens UDP on the outer interfaces and has keys everybody knows.
"""

import secrets
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.errors import ConfigError, PersonaPlexError

_START_TIMEOUT_S = 30.0
_CONFIG = """\
port: {port}
bind_addresses: ["127.0.0.1"]
keys: {{{key}: {secret}}}
logging: {{level: warn}}
rtc:
  udp_port: {udp_port}
  tcp_port: {tcp_port}
  node_ip: 127.0.0.1
  enable_loopback_candidate: true
  use_external_ip: false
  interfaces: {{includes: [lo]}}
  ips: {{includes: [127.0.0.0/8]}}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveKitCredentials:
    """Where a LiveKit server is and what proves to it that we may use it."""

    url: str
    api_key: str
    api_secret: str


def find_livekit_server(project: Path) -> Path:
    """Return the livekit-server to run: the one on PATH, else the one built in ``.tools``.

    Raises:
        ConfigError: There is none.
    """
    found = shutil.which("livekit-server") or shutil.which(project / ".tools" / "livekit-server")
    if found is None:
        raise ConfigError(
            "expected livekit-server on PATH or in .tools, found neither; "
            "`make demo` and `make test` build it (they need Go), or install it yourself"
        )
    return Path(found)


class LocalLiveKitServer:
    """Runs a livekit-server from construction until `close`; blocks until it accepts connections.

    Args:
        binary: The program, see `find_livekit_server`.
        redis: ``HOST:PORT`` of a Redis, which telephony needs; None works without one.

    Raises:
        PersonaPlexError: It did not start.
    """

    def __init__(self, binary: Path, *, redis: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="livekit-server-")
        port, tcp_port = _free_ports(socket.SOCK_STREAM, 2)
        (udp_port,) = _free_ports(socket.SOCK_DGRAM, 1)
        key, secret = f"key{secrets.token_hex(6)}", secrets.token_urlsafe(36)
        config = Path(self._folder.name) / "livekit.yaml"
        text = _CONFIG.format(
            port=port, tcp_port=tcp_port, udp_port=udp_port, key=key, secret=secret
        )
        if redis is not None:
            text += f'redis: {{address: "{redis}"}}\n'
        config.write_text(text, encoding="utf-8")
        self.credentials = LiveKitCredentials(
            url=f"ws://127.0.0.1:{port}", api_key=key, api_secret=secret
        )
        self.process = LoggedProcess("livekit-server", [str(binary), "--config", str(config)])
        try:
            self._wait_until_listening(port)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop it and remove its configuration."""
        self.process.terminate(timeout_s=5.0)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait_until_listening(self, port: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.returncode is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1.0):
                    return
            except OSError:
                time.sleep(0.05)
        raise PersonaPlexError(
            f"livekit-server did not listen on 127.0.0.1:{port} within {_START_TIMEOUT_S:g} s; "
            f"its last lines:\n{self.process.tail()}"
        )


def _free_ports(kind: socket.SocketKind, count: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
