"""The element's properties: what GStreamer is told about them, and the call that they ask for."""

from typing import Any

from gi.repository import GObject, Gst

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.gst.call import CallOptions
from livekit_personaplex.sampling import (
    MAX_SEED,
    MAX_TEMPERATURE,
    MAX_TOP_K,
    SAMPLING_FIELDS,
    Sampling,
)
from livekit_personaplex.settings import EngineEndpoint

RANDOM_SEED = -1

_BOTH = GObject.ParamFlags.READWRITE
_USUAL = Sampling()


def _text(nick: str, blurb: str, flags: Any = _BOTH) -> tuple[Any, ...]:
    return (str, nick, f"{blurb}; of the next session", "", flags)


def _temperature(nick: str, usual: float) -> tuple[Any, ...]:
    blurb = "0 takes the likeliest token always; of the next session"
    return (float, nick, blurb, 0.0, MAX_TEMPERATURE, usual, _BOTH)


def _top_k(nick: str, usual: int) -> tuple[Any, ...]:
    blurb = "How many of the likeliest tokens are drawn from; of the next session"
    return (int, nick, blurb, 1, MAX_TOP_K, usual, _BOTH)


SPECIFICATIONS: dict[str, tuple[Any, ...]] = {
    "engine": _text("Engine", "unix:PATH or HOST:PORT; empty for PERSONAPLEX_ENGINE"),
    "token": _text(
        "Token",
        "Bearer token of an engine on TCP; empty for PERSONAPLEX_TOKEN, which no list of processes "
        "shows",
        GObject.ParamFlags.WRITABLE,
    ),
    "voice": _text("Voice", "Name of one of the engine's voices; empty for its usual one"),
    "persona": _text("Persona", "Who the agent is, in a few sentences"),
    "first-speaker": (
        str,
        "First speaker",
        "model: it decides, if there is no greeting; agent: it begins at once; caller: it is "
        "silent until the caller has spoken; of the next session",
        "model",
        _BOTH,
    ),
    "caller-first-timeout": (
        GObject.TYPE_UINT64,
        "Timeout of the caller's first word",
        "With first-speaker=caller, how long a silent caller is waited for, in nanoseconds; of the "
        "next session",
        1,
        GObject.G_MAXINT64,
        10 * Gst.SECOND,
        _BOTH,
    ),
    "greeting": _text("Greeting", "Words that the agent begins with, in its own voice"),
    "greedy": (
        bool,
        "Greedy",
        "Take the likeliest token always; of the next session",
        _USUAL.greedy,
        _BOTH,
    ),
    "text-temperature": _temperature("Temperature of text", _USUAL.text_temperature),
    "text-top-k": _top_k("Top-k of text", _USUAL.text_top_k),
    "audio-temperature": _temperature("Temperature of audio", _USUAL.audio_temperature),
    "audio-top-k": _top_k("Top-k of audio", _USUAL.audio_top_k),
    "seed": (
        GObject.TYPE_INT64,
        "Seed",
        "One seed, one conversation; -1 draws a random one; of the next session",
        RANDOM_SEED,
        MAX_SEED,
        RANDOM_SEED,
        _BOTH,
    ),
    "stats": (
        Gst.Structure,
        "Statistics",
        "Counts of the session: played-frames (of 80 ms), and of these filler-frames (silence, the "
        "answer was late); dropped-frames (of the agent, too late), skipped-frames (this process "
        "was stuck) and late-samples (of the caller, too late)",
        GObject.ParamFlags.READABLE,
    ),
}
"""What PyGObject makes properties of; "of the next session" is what changes of an open one mean."""


class Properties:
    """Values of an element's properties."""

    def __init__(self) -> None:
        """Begin with the defaults."""
        self._values: dict[str, Any] = {
            name: specification[-2] for name, specification in SPECIFICATIONS.items()
        }

    def __getitem__(self, name: str) -> Any:
        """Give the value of a property."""
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set the value of a property; GStreamer has checked its type and range."""
        self._values[name] = "" if value is None else value

    def call_options(self) -> CallOptions:
        """Say what call they ask for.

        Raises:
            ConfigError: No engine is named, or a value cannot be used.
        """
        endpoints = EngineEndpoint.each_named(self["engine"], token=self["token"])
        if not endpoints:
            raise ConfigError(
                "no engine is named: set the property engine, or PERSONAPLEX_ENGINE, to the "
                "address of a running one"
            )
        drawn = {name: self[name.replace("_", "-")] for name in SAMPLING_FIELDS}
        if drawn["seed"] == RANDOM_SEED:
            drawn["seed"] = None
        return CallOptions(
            endpoints=endpoints,
            voice=self["voice"] or None,
            persona=self["persona"],
            sampling=Sampling(**drawn),
            greeting=self["greeting"],
            first_speaker=self["first-speaker"] or "model",
            caller_first_timeout_s=self["caller-first-timeout"] / Gst.SECOND,
        )
