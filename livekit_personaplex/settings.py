"""Settings of an engine, and the only place that reads the environment.

====================  =============================================================
PERSONAPLEX_MODEL     model folder or hub id
PERSONAPLEX_DEVICE    cuda, cuda:N or cpu; a worker starts an engine on each of a list, as in
                      cuda:0,cuda:1
PERSONAPLEX_DTYPE     bfloat16 or float32; by default bfloat16 on cuda, float32 on cpu
PERSONAPLEX_SLOTS     conversations of one engine at a time; by default as many as fit a GPU, one
                      on a CPU
PERSONAPLEX_KV        fp8: keys and values in 8 bits, so that twice as many fit
PERSONAPLEX_VOICES    folder of the operator's own voices (WAV)
PERSONAPLEX_RECORD    folder for recordings of what the engine heard and answered
PERSONAPLEX_ENGINE    address of an engine that runs already, or a list of them with commas between;
                      nothing is started then
PERSONAPLEX_TOKEN     bearer token of an engine on TCP
PERSONAPLEX_METRICS   port of a worker's Prometheus metrics; by default there is none
PERSONAPLEX_CAPTIONS  local: a worker's calls show the caller's words too, by a small recogniser
====================  =============================================================
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.wire.address import EngineAddress

DEFAULT_MODEL = "nvidia/personaplex-7b-v1"
DEVICES = ("cuda", "cpu")
"""Kinds of device. One of several GPUs is ``cuda:N``."""
DTYPES = ("bfloat16", "float32")
KV_DTYPES = ("same", "fp8")

_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?", re.ASCII)
_PREFIX = "PERSONAPLEX_"
_PRELOAD = "LIVEKIT_AGENTS_PRELOAD_LOCAL_INFERENCE"
_RECOGNIZER_ONE_THREAD = "MOONSHINE_ORT_SINGLE_THREAD"
_NAMES = (
    "MODEL",
    "DEVICE",
    "DTYPE",
    "SLOTS",
    "KV",
    "VOICES",
    "RECORD",
    "ENGINE",
    "TOKEN",
    "METRICS",
    "CAPTIONS",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """What one engine process is made from. Raises `ConfigError` for values that cannot be used.

    Attributes:
        model: Model folder, or hub id.
        slots: Conversations that fit at a time; None: as many as fit a GPU, one on a CPU.
        device: ``cuda``, ``cuda:N`` for one of several GPUs, or ``cpu``.
        dtype: ``bfloat16`` or ``float32``.
        kv: Keys and values: ``same`` as the dtype, or ``fp8``, half of bfloat16 and a little noisy.
        listen: Where to listen; None lets whoever starts the engine choose a private Unix socket.
        token: What clients on TCP must know.
        voices_dir: Folder of the operator's own voices, ``NAME.wav``.
        record_dir: Folder for one recording per session: what the engine heard and what it said.
            Takes 96 KB of memory per second of a call until the call ends.
        max_backlog_frames: User frames of one session that wait for a tick; beyond it the oldest
            are dropped, so that delay never piles up.
        tick_timeout_s: A tick that takes longer ends the engine: the device hangs.
        nvidia_protocol: Also serve clients of NVIDIA's protocol, on ``/api/chat``.
        nvidia_client_dir: Folder of NVIDIA's built browser client, to be served with that protocol.
    """

    model: str = DEFAULT_MODEL
    slots: int | None = None
    device: str = "cuda"
    dtype: str = "bfloat16"
    kv: str = "same"
    listen: EngineAddress | None = None
    token: str | None = field(default=None, repr=False)
    voices_dir: Path | None = None
    record_dir: Path | None = None
    max_backlog_frames: int = 4
    tick_timeout_s: float = 10.0
    nvidia_protocol: bool = False
    nvidia_client_dir: Path | None = None

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model must be a model folder or a hub id, got an empty text")
        _check_device(self.device)
        _check_one_of("dtype", self.dtype, DTYPES)
        _check_one_of("kv", self.kv, KV_DTYPES)
        for name in ("slots", "max_backlog_frames"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.tick_timeout_s < math.inf:
            raise ConfigError(f"tick_timeout_s must be above 0, got {self.tick_timeout_s}")
        if self.nvidia_client_dir is not None and not self.nvidia_protocol:
            raise ConfigError("NVIDIA's client needs its protocol: set nvidia_protocol too")
        if self.listen is not None and not self.listen.is_unix and not self.token:
            raise ConfigError(
                f"an engine on TCP ({self.listen}) needs a token: set PERSONAPLEX_TOKEN to a "
                "secret that its clients know too, or listen on unix:PATH"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> "EngineSettings":
        """Make settings from the environment.

        Args:
            environ: The environment; the process's own by default.
            **given: Fields that go before the environment; those that are None do not.

        Raises:
            ConfigError: A variable is unknown or cannot be used.
        """
        values = _read(environ)
        fields: dict[str, Any] = {
            "model": values.get("MODEL"),
            "slots": _parse_count("SLOTS", values),
            "device": values.get("DEVICE"),
            "dtype": values.get("DTYPE"),
            "kv": values.get("KV"),
            "token": values.get("TOKEN"),
            "voices_dir": _parse_folder("VOICES", values),
            "record_dir": _parse_folder("RECORD", values),
            **{name: value for name, value in given.items() if value is not None},
        }
        if fields["dtype"] is None and fields["device"] is not None:
            fields["dtype"] = default_dtype(fields["device"])
        return cls(**{name: value for name, value in fields.items() if value is not None})

    @classmethod
    def each_from_env(cls, environ: Mapping[str, str] | None = None) -> "list[EngineSettings]":
        """Make the settings of every engine of this host: one for each device named.

        Raises:
            ConfigError: Like `from_env`; or a GPU is named twice.
        """
        devices = _split(_read(environ).get("DEVICE"))
        gpus = [device for device in devices if device != "cpu"]
        if len(gpus) > len({"cuda:0" if gpu == "cuda" else gpu for gpu in gpus}):
            raise ConfigError(
                f"{_PREFIX}DEVICE must name each GPU once, as in cuda:0,cuda:1; "
                f"got {','.join(devices)}"
            )
        if not devices:
            return [cls.from_env(environ)]
        return [cls.from_env(environ, device=device) for device in devices]

    def child_environment(self) -> dict[str, str]:
        """Give the environment of an engine process of these settings.

        It is ours without what is set here, and the token, which is not for a command line.
        """
        environ = {k: v for k, v in os.environ.items() if not k.startswith(_PREFIX)}
        return environ if self.token is None else {**environ, f"{_PREFIX}TOKEN": self.token}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineEndpoint:
    """An engine that runs already: its address and its token."""

    address: EngineAddress
    token: str | None = field(default=None, repr=False)

    @classmethod
    def each_from_env(cls, environ: Mapping[str, str] | None = None) -> "list[EngineEndpoint]":
        """Read PERSONAPLEX_ENGINE and PERSONAPLEX_TOKEN; empty when no engine is named.

        Raises:
            ConfigError: A variable is unknown or cannot be used.
        """
        values = _read(environ)
        addresses = [EngineAddress.parse(text) for text in _split(values.get("ENGINE"))]
        return [cls(address=address, token=values.get("TOKEN")) for address in addresses]

    @classmethod
    def each_named(cls, engines: str, *, token: str = "") -> "list[EngineEndpoint]":
        """Read what was given as PERSONAPLEX_ENGINE and PERSONAPLEX_TOKEN are read.

        Args:
            engines: An address, or a list with commas between; empty for those of the environment.
            token: Empty for that of the environment.

        Raises:
            ConfigError: An address, or a variable, cannot be used.
        """
        given = {f"{_PREFIX}ENGINE": engines, f"{_PREFIX}TOKEN": token}
        return cls.each_from_env({**os.environ, **{k: v for k, v in given.items() if v}})


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveKitSettings:
    """Where the LiveKit server is, by LiveKit's own variables; empty what is not set."""

    url: str
    api_key: str
    api_secret: str = field(repr=False)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "LiveKitSettings":
        """Read LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET; checks nothing."""
        given = os.environ if environ is None else environ
        return cls(
            url=given.get("LIVEKIT_URL", ""),
            api_key=given.get("LIVEKIT_API_KEY", ""),
            api_secret=given.get("LIVEKIT_API_SECRET", ""),
        )

    def missing(self) -> list[str]:
        """Names of the variables that are not set."""
        values = {"URL": self.url, "API_KEY": self.api_key, "API_SECRET": self.api_secret}
        return [f"LIVEKIT_{name}" for name, value in values.items() if not value]


@contextmanager
def exported_to_jobs(endpoints: Sequence[EngineEndpoint]) -> Iterator[None]:
    """Name engines in this process's own environment, which LiveKit's job processes inherit.

    Unless the operator said otherwise, LiveKit is also told not to load its own speech models into
    them (244 MB): a duplex model uses none. On leaving everything is as it was.

    Args:
        endpoints: Of one token.
    """
    additions = {f"{_PREFIX}ENGINE": ",".join(str(endpoint.address) for endpoint in endpoints)}
    if endpoints[0].token is not None:
        additions[f"{_PREFIX}TOKEN"] = endpoints[0].token
    additions[_PRELOAD] = os.environ.get(_PRELOAD, "0")
    before = {name: os.environ.get(name) for name in additions}
    os.environ.update(additions)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def worker_metrics_port(environ: Mapping[str, str] | None = None) -> int | None:
    """Read PERSONAPLEX_METRICS; None when it is not set.

    Raises:
        ConfigError: It, or another variable, cannot be used.
    """
    port = _parse_count("METRICS", _read(environ))
    if port is not None and port > 65_535:
        raise ConfigError(f"{_PREFIX}METRICS must be a port up to 65535, got {port}")
    return port


def local_captions_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Read PERSONAPLEX_CAPTIONS: whether a recogniser here is to read what callers say.

    Raises:
        ConfigError: It, or another variable, cannot be used.
    """
    wanted = _read(environ).get("CAPTIONS")
    if wanted not in (None, "local"):
        raise ConfigError(f"{_PREFIX}CAPTIONS must be local, or not set, got {wanted!r}")
    return wanted is not None


def recognizer_environment() -> dict[str, str]:
    """Give the environment of a recogniser's process, which is ours, with one thread to decode.

    A second one waits for the first by spinning: as fast, at twice the CPU time.
    """
    return {_RECOGNIZER_ONE_THREAD: "1", **os.environ}


def has_multiprocess_metrics() -> bool:
    """Whether Prometheus's client gathers metrics from files of many processes."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def default_dtype(device: str) -> str:
    """Give the dtype that suits a device."""
    return "float32" if device == "cpu" else "bfloat16"


def child_environment(additions: Mapping[str, str]) -> dict[str, str]:
    """Give this process's environment with additions, for a program that it starts."""
    return {**os.environ, **additions}


def _read(environ: Mapping[str, str] | None) -> dict[str, str]:
    """Give our variables without their prefix; one that is set but empty counts as not set."""
    given = os.environ if environ is None else environ
    values = {k.removeprefix(_PREFIX): v for k, v in given.items() if k.startswith(_PREFIX)}
    if unknown := sorted(values.keys() - set(_NAMES)):
        raise ConfigError(
            f"unknown environment variables {', '.join(_PREFIX + name for name in unknown)}; "
            f"known are {', '.join(_PREFIX + name for name in _NAMES)}"
        )
    return {name: value for name, value in values.items() if value}


def _parse_count(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"{_PREFIX}{name} must be a whole number, got {text!r}")
    return int(text)


def _split(text: str | None) -> list[str]:
    """Give the entries of a list with commas between."""
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


def _parse_folder(name: str, values: Mapping[str, str]) -> Path | None:
    text = values.get(name)
    return None if text is None else Path(text)


def _check_device(name: str) -> None:
    if "," in name:
        raise ConfigError(
            f"one engine runs on one device, got {name!r}; an agent's worker starts an engine on "
            "each device of such a list"
        )
    if not _DEVICE.fullmatch(name):
        raise ConfigError(f"device must be cuda, cuda:N or cpu, got {name!r}")


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
