"""Who speaks: two agents, any number of callers, and the engine that says it.

Caller number k is the same on every machine: its engine and settings are drawn from k alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from examples.demo_model.speech import flite
from examples.demo_model.speech.utterance import Utterance
from examples.demo_model.talk.domain import Token

AGENT, CALLER = "agent", "caller"
_ESPEAK_SHARE = 0.15
_ACCENTS = ("en-us", "en-us", "en-us", "en-gb", "en-gb-x-rp")
_HEADS = """m1 m2 m3 m4 m5 m6 m7 m8 f1 f2 f3 f4 f5 Gene Gene2 Denis Hugo Reed Henrique adam anika
announcer""".split()
_HELD_EVERY = 25


@dataclass(frozen=True, slots=True)
class Speaker:
    """One voice.

    Attributes:
        role: ``agent`` or ``caller``.
        engine: ``hibari``, ``espeak`` or ``flite``.
        settings: What the engine is told.
        held: Never heard in training.
    """

    name: str
    role: str
    engine: str
    settings: dict[str, float | str]
    held: bool = False


class Engine(Protocol):
    """A text to speech."""

    def say(
        self, tokens: Sequence[Token], settings: Mapping[str, float | str], r: np.random.Generator
    ) -> Utterance:
        """Speak the tokens."""
        ...


AGENTS = (
    Speaker("DEMOF0", AGENT, "hibari", {"lock": 1.0}),
    Speaker(
        "DEMOM0",
        AGENT,
        "hibari",
        {"lock": 1.0, "f0": 0.58, "range": 0.9, "warp": 0.86, "tilt": -1.0},
    ),
)


def flite_callers(count: int) -> list[Speaker]:
    """Callers of the text to speech that is kept for measuring."""
    r = np.random.default_rng([17, 1])
    speakers = []
    for k in range(count):
        settings: dict[str, float | str] = {
            "voice": flite.VOICES[k % len(flite.VOICES)],
            "duration_stretch": round(r.uniform(0.9, 1.25), 3),
            "int_f0_target_mean": round(r.uniform(*((150, 220) if k % 4 == 0 else (85, 140)))),
        }
        speakers.append(Speaker(f"flite{k}", CALLER, "flite", settings, held=True))
    return speakers


def caller(k: int) -> Speaker:
    """Caller number ``k``: one in seven is espeak's, the rest bent from the neural voice.

    One in 25 is held, of either engine.
    """
    r = np.random.default_rng([17, 0, k])
    held = k % _HELD_EVERY == _HELD_EVERY - 1
    if r.random() < _ESPEAK_SHARE:
        spoken: dict[str, float | str] = {
            "voice": f"{r.choice(_ACCENTS)}+{r.choice(_HEADS)}",
            "rate": int(r.uniform(130, 195)),
            "pitch": int(r.uniform(20, 75)),
            "range": int(r.uniform(15, 80)),
        }
        return Speaker(f"espeak{k}", CALLER, "espeak", spoken, held)
    is_low = r.random() < 0.5
    bent: dict[str, float | str] = {
        "f0": r.uniform(0.42, 0.75) if is_low else r.uniform(0.75, 1.4),
        "range": r.uniform(0.1, 0.6) if r.random() < 0.2 else r.uniform(0.6, 1.6),
        "warp": r.uniform(0.78, 0.98) if is_low else r.uniform(0.92, 1.2),
        "tilt": r.uniform(-3, 2),
        "breath": r.uniform(-6, 8),
        "speed": r.uniform(0.78, 1.3),
        "drift": r.uniform(0.0, 0.12),
        "pace": r.uniform(0.0, 0.22),
        "blur": int(r.integers(0, 9)) if r.random() < 0.4 else 0,
    }
    return Speaker(f"hibari{k}", CALLER, "hibari", bent, held)


class Engines:
    """The engines of one process, opened when first needed."""

    def __init__(self) -> None:
        self._open: dict[str, Engine] = {}

    def say(self, speaker: Speaker, tokens: Sequence[Token], r: np.random.Generator) -> Utterance:
        """Let a speaker say the tokens."""
        engine = self._open.get(speaker.engine)
        if engine is None:
            engine = self._open[speaker.engine] = _engine(speaker.engine)
        return engine.say(tokens, speaker.settings, r)


def _engine(name: str) -> Engine:
    if name == "hibari":
        from examples.demo_model.speech.speech import Speech

        return Speech()
    if name == "espeak":
        from examples.demo_model.speech.espeak import Espeak

        return Espeak()
    return flite.Flite()
