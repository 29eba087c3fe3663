"""What an engine tells about itself over plain HTTP: counters, voices, lengths of personas."""

from dataclasses import asdict, dataclass

from livekit_personaplex.errors import ProtocolError
from livekit_personaplex.wire.histogram import Histogram
from livekit_personaplex.wire.json_message import JsonMessage, dump_json, parse_json


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStats:
    """Counters of a running engine, as ``/stats`` gives them.

    Attributes:
        ready: It takes sessions.
        slots: Conversations that fit at a time; 0 until the model is loaded.
        used: Slots that are not free.
        ticks: Ticks since the start.
        tick_p50_ms: Median duration of the latest ticks.
        tick_p99_ms: Their 99th percentile.
        tick_max_ms: Their longest.
        overruns: Ticks that took longer than the 80 ms of a frame.
        backlog_frames: User frames that wait for a tick now.
        dropped_frames: User frames that a full backlog pushed out, since the start.
        user_frames: User frames that came since the start.
        agent_frames: Agent frames made since the start.
        opened: Sessions that became ready.
        refused: Sessions refused: no free slot, or voice, persona or sampling unusable.
        failed: Sessions that an error ended after they had become ready.
        uptime_s: Seconds since the engine started.
        tick_s: Durations of all ticks, in seconds.
        open_s: Seconds from a request to a session that is ready.
        call_audio_s: Seconds of audio that the model made, of each session that is over.
    """

    ready: bool
    slots: int
    used: int
    ticks: int
    tick_p50_ms: float
    tick_p99_ms: float
    tick_max_ms: float
    backlog_frames: int
    dropped_frames: int
    agent_frames: int
    opened: int
    refused: int
    failed: int
    uptime_s: float
    overruns: int = 0
    user_frames: int = 0
    tick_s: Histogram = Histogram()
    open_s: Histogram = Histogram()
    call_audio_s: Histogram = Histogram()

    @property
    def load(self) -> float:
        """Share of the slots that are not free; 1 while it takes no sessions."""
        return self.used / self.slots if self.ready and self.slots else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonaLength:
    """How much of the model's window a persona takes.

    Attributes:
        tokens: Its length with the tags around it; each token takes a step of the window.
        max_tokens: Length of the longest that the engine takes.
        window: Steps that the model can look back on.
    """

    tokens: int
    max_tokens: int
    window: int


def pack_stats(stats: EngineStats) -> str:
    """Write counters as JSON."""
    return dump_json(asdict(stats))


def unpack_stats(text: str) -> EngineStats:
    """Read counters; fields that a newer engine adds are ignored. Raises `ProtocolError`."""
    message = JsonMessage(text)
    return EngineStats(
        ready=message.take_bool("ready"),
        slots=message.take_int("slots"),
        used=message.take_int("used"),
        ticks=message.take_int("ticks"),
        tick_p50_ms=message.take_float("tick_p50_ms"),
        tick_p99_ms=message.take_float("tick_p99_ms"),
        tick_max_ms=message.take_float("tick_max_ms"),
        overruns=message.take_int("overruns"),
        backlog_frames=message.take_int("backlog_frames"),
        dropped_frames=message.take_int("dropped_frames"),
        agent_frames=message.take_int("agent_frames"),
        opened=message.take_int("opened"),
        refused=message.take_int("refused"),
        failed=message.take_int("failed"),
        uptime_s=message.take_float("uptime_s"),
        user_frames=message.take_int("user_frames"),
        tick_s=_take_histogram(message, "tick_s"),
        open_s=_take_histogram(message, "open_s"),
        call_audio_s=_take_histogram(message, "call_audio_s"),
    )


def _take_histogram(message: JsonMessage, name: str) -> Histogram:
    fields = message.take_dict(name)
    try:
        return Histogram(
            bounds=tuple(float(bound) for bound in fields["bounds"]),
            counts=tuple(int(count) for count in fields["counts"]),
            total=float(fields["total"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ProtocolError(f"the field {name!r} must be a histogram") from None


def pack_voices(names: list[str]) -> str:
    """Write the names of the voices as JSON."""
    return dump_json(names)


def unpack_voices(text: str) -> list[str]:
    """Read the names of the voices. Raises `ProtocolError`."""
    names = parse_json(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProtocolError("expected a JSON list of voice names")
    return names


def pack_length(length: PersonaLength) -> str:
    """Write the length of a persona as JSON."""
    return dump_json(asdict(length))


def unpack_length(text: str) -> PersonaLength:
    """Read the length of a persona. Raises `ProtocolError`."""
    message = JsonMessage(text)
    return PersonaLength(
        tokens=message.take_int("tokens"),
        max_tokens=message.take_int("max_tokens"),
        window=message.take_int("window"),
    )
