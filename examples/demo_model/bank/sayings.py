"""What each caller of the bank says: about 40 questions and words, drawn from his number alone."""

from dataclasses import dataclass

import numpy as np

from examples.demo_model.speech.utterance import Utterance, join
from examples.demo_model.speech.voices import Engines, Speaker
from examples.demo_model.talk.domain import Pools, Token, sentence
from examples.demo_model.talk.phrases import PREFIXES, phrasings

_COUNTS = {
    **dict.fromkeys(("name",), 3),
    **dict.fromkeys(("company", "open", "close", "hours", "where", "day"), 2),
    **dict.fromkeys(("deliver", "park", "live", "hobby", "color", "food", "animal"), 1),
    **dict.fromkeys(("hello", "how", "off", "thanks", "bye"), 1),
    "bc": 2,
}
_ODD = ("robot", "joke")
_ITEMS, _PHRASINGS_AN_ITEM = 5, 2
_WITH_PREFIX, _WITH_PAUSE = 0.22, 0.08
_BARE = ("hello", "thanks", "bye", "bc")
"""Kinds said as they are, with no prefix before them and no pause within."""


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing that a caller says.

    Attributes:
        key: ``ask.KIND#NUMBER/VALUE``; ``+pre`` after a prefix, ``+pause`` with a pause within.
        parts: Words, in two parts around the pause.
        pause_s: How long the caller thinks between the parts.
    """

    key: str
    parts: tuple[tuple[Token, ...], ...]
    pause_s: float = 0.0

    def speak(self, engines: Engines, speaker: Speaker, r: np.random.Generator) -> Utterance:
        """Let the caller say it."""
        said = [engines.say(speaker, part, r) for part in self.parts]
        return join(said, [self.pause_s] * (len(said) - 1)) if len(said) > 1 else said[0]


def sayings(r: np.random.Generator, values: Pools, held: bool) -> list[Saying]:
    """Draw what a caller says.

    A held caller says both: trained phrasings and items, and those kept out of training.
    """
    if not held:
        return _drawn(r, values.only(held=False), False, 1.0)
    return _drawn(r, values.only(held=False), False, 0.6) + _drawn(
        r, values.only(held=True), True, 0.6
    )


def _drawn(r: np.random.Generator, values: Pools, held: bool, share: float) -> list[Saying]:
    keys = []
    for kind, count in {**_COUNTS, _ODD[r.integers(len(_ODD))]: 1}.items():
        numbers = phrasings(kind, held)
        chosen = r.permutation(numbers)[: max(1, round(count * share))]
        days = r.permutation(values.single["day"])
        for i, number in enumerate(chosen):
            keys.append(f"ask.{kind}#{number}" + (f"/{days[i]}" if kind == "day" else ""))
    items = r.permutation([*values.prices])[: max(2, round(_ITEMS * share))]
    for item in items:
        numbers = phrasings("price", held)
        for number in r.permutation(numbers)[:_PHRASINGS_AN_ITEM]:
            keys.append(f"ask.price#{number}/{item}")
    return [_saying(r, key) for key in keys if not (held and key.startswith("ask.bc"))]


def _saying(r: np.random.Generator, key: str) -> Saying:
    tokens = sentence(key)
    chance = r.random()
    is_bare = key[len("ask.") : key.index("#")] in _BARE
    if is_bare or chance > _WITH_PREFIX + _WITH_PAUSE or len(tokens) < 3:
        return Saying(key, (tokens,))
    if chance < _WITH_PREFIX:
        written = PREFIXES[r.integers(len(PREFIXES))]
        prefix = tuple(Token(word, (word,), False) for word in written.split())
        return Saying(f"{key}+pre", ((*prefix, *_lowered(tokens)),))
    at = int(r.integers(1, len(tokens)))
    parts = (tokens[:at], tokens[at:])
    return Saying(f"{key}+pause", parts, pause_s=float(r.uniform(0.5, 1.3)))


def _lowered(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    first = tokens[0].written
    if first.startswith(("I ", "I'")) or first == "I":
        return tokens
    word = first[0].lower() + first[1:]
    return (Token(word, (word,), False), *tokens[1:])
