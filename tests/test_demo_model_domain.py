"""The closed domain of the demo model: what is enumerated, what is copied, what is held out."""

import numpy as np
import pytest

from examples.demo_model.talk import pools
from examples.demo_model.talk.domain import (
    Pools,
    agent_keys,
    full_pools,
    sentence,
    small_pools,
    text_of,
)
from examples.demo_model.talk.persona import CHAT, SERVICE, TOPICS, draw_persona, greeting, reply_to
from examples.demo_model.talk.phrases import PHRASINGS, phrasings

ASKED = {
    SERVICE: [
        "name",
        "company",
        "open",
        "close",
        "hours",
        "day",
        "price",
        "where",
        "deliver",
        "park",
    ],
    CHAT: ["name", "live", "hobby", "color", "food", "animal"],
}
ALWAYS = ["hello", "how", "robot", "joke", "thanks", "bye", "off"]


@pytest.fixture(scope="module")
def keys() -> set[str]:
    return set(agent_keys(full_pools()))


def personas(values: Pools, count: int):
    r = np.random.default_rng(3)
    for _ in range(count):
        kind = (SERVICE, CHAT)[int(r.random() < 0.3)]
        item = [*values.prices][r.integers(len(values.prices))]
        topics = [f"item/{item}"] if kind == SERVICE else []
        yield r, draw_persona(r, values, kind, topics, int(r.integers(1, 8))), item


@pytest.mark.parametrize("held", [False, True])
def test_every_sentence_of_every_persona_is_enumerated(keys: set[str], held: bool) -> None:
    values = full_pools().only(held).within(keys)
    for r, persona, item in personas(values, 1500):
        said = [*greeting(r, persona).keys]
        for kind in ASKED[persona.kind] + ALWAYS:
            value = {"price": item, "day": pools.DAYS[r.integers(7)]}.get(kind, "")
            said += reply_to(r, persona, kind, value).keys
        missing = [key for key in said if key not in keys]
        assert not missing


def test_facts_stand_in_the_persona_and_in_the_reply() -> None:
    for r, persona, item in personas(full_pools(), 1500):
        for kind in ASKED[persona.kind]:
            value = {"price": item, "day": "Monday"}.get(kind, "")
            reply = reply_to(r, persona, kind, value)
            words = " ".join(text_of(key) for key in reply.keys)
            assert reply.facts
            for fact in reply.facts:
                assert fact.lower() in words.lower()
                assert not reply.is_copied or fact in persona.text


def test_unknown_facts_are_not_invented() -> None:
    r = np.random.default_rng(0)
    persona = draw_persona(r, full_pools(), SERVICE, ["hours"], 1)
    for kind, value in (("where", ""), ("price", "red scarf"), ("day", "Monday"), ("park", "")):
        assert "don't" in text_of(reply_to(r, persona, kind, value).keys[0])


def test_held_words_are_in_no_training_pool() -> None:
    trained = full_pools().only(held=False)
    words = {w.lower() for v in (trained.names, trained.prices, trained.addresses) for w in v}
    words |= {name.split()[0].lower() for name in trained.companies}
    assert not {w for value in words for w in value.split()} & pools.HELD_WORDS
    held = full_pools().only(held=True)
    assert min(len(held.names), len(held.companies), len(held.prices), len(held.addresses)) > 3


def test_held_phrasings_are_others() -> None:
    for kind in PHRASINGS:
        trained, held = phrasings(kind, held=False), phrasings(kind, held=True)
        assert held and (kind == "bc" or not set(trained) & set(held))
        assert kind == "bc" or len(trained) >= 2 * len(held)


def test_a_small_bank_still_makes_personas() -> None:
    keys = agent_keys(small_pools())
    assert len(keys) < 700
    for held in (False, True):
        values = full_pools().only(held).within(set(keys))
        for kind in TOPICS:
            assert draw_persona(np.random.default_rng(1), values, kind, [], 4).text


def test_facts_are_marked_word_by_word() -> None:
    tokens = sentence("price#0/red scarf/58 dollars")
    assert [t.written for t in tokens] == ["The", "red", "scarf", "is", "58", "dollars."]
    assert [t.is_fact for t in tokens] == [False, True, True, False, True, True]
    assert tokens[4].spoken == ("fifty", "eight")
    assert sentence("open#0/9 am")[-1].spoken == ("AM.",)
