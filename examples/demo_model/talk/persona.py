"""Random personas of the closed domain, in the forms the big model was trained with.

A fact is known by its **topic**: ``hours``, ``item/red scarf``, ``address``, ``closed``, ... with
the values of its slots. A question asks for one topic; what the agent replies is a row of keys.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from examples.demo_model.talk import pools
from examples.demo_model.talk.domain import Pools, price_of
from examples.demo_model.talk.phrases import BIT_FORMS, REPLY_FORMS

SERVICE, CHAT = "service", "chat"
TOPICS = {
    SERVICE: ("hours", "item", "address", "closed", "deliver", "park"),
    CHAT: ("live", "hobby", "color", "food", "animal"),
}
_TOPIC_OF = {"open": "hours", "close": "hours", "where": "address", "day": "closed"}
_CITY_SLOT = {"live": "city"}
ALWAYS_KNOWN = ("name", "hello", "how", "robot", "joke", "thanks", "bye", "off")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent says.

    Attributes:
        keys: Sentences in a row.
        facts: What the words of the reply must contain to be right, as written.
        is_copied: Whether the facts stand in the persona's text word by word.
    """

    keys: tuple[str, ...]
    facts: tuple[str, ...] = ()
    is_copied: bool = False


@dataclass(frozen=True, slots=True)
class Persona:
    """Who the agent is.

    Attributes:
        kind: ``service`` or ``chat``.
        facts: Topic to the values of its slots.
        text: As a user would type it.
    """

    kind: str
    name: str
    company: str
    facts: dict[str, dict[str, str]]
    text: str


def topic_of(kind: str, value: str = "") -> str | None:
    """Say which fact answers a kind of question; None when every persona can answer it."""
    if kind in ALWAYS_KNOWN or kind in ("company", "bc"):
        return None
    return f"item/{value}" if kind == "price" else _TOPIC_OF.get(kind, kind)


def draw_persona(
    r: np.random.Generator,
    values: Pools,
    kind: str,
    topics: list[str],
    count: int,
    unknown: AbstractSet[str] = frozenset(),
) -> Persona:
    """Make a persona that knows all of ``topics``, and others until it knows ``count`` facts.

    It knows nothing of the topics in ``unknown``.
    """
    facts = {topic: _draw_fact(r, values, topic) for topic in topics}
    spare = [topic for topic in TOPICS[kind] if topic not in facts and topic not in unknown]
    r.shuffle(spare)
    items = [*values.prices]
    while len(facts) < count and spare:
        topic = spare.pop()
        if topic == "item":
            topic = f"item/{items[r.integers(len(items))]}"
            if any(_noun(topic) == _noun(known) for known in (*facts, *unknown)):
                continue
            if sum(known.startswith("item/") for known in facts) == 0 and r.random() < 0.5:
                spare.append("item")
        facts[topic] = _draw_fact(r, values, topic)
    name = values.names[r.integers(len(values.names))]
    company = values.companies[r.integers(len(values.companies))] if kind == SERVICE else ""
    return Persona(kind, name, company, facts, _text(r, kind, name, company, facts))


def may_join(topics: list[str], topic: str) -> bool:
    """Whether a persona may know another item: no two of one noun, at most three."""
    if not topic.startswith("item/"):
        return True
    known = [other for other in topics if other.startswith("item/")]
    return len(known) < 3 and all(_noun(other) != _noun(topic) for other in known)


def _noun(topic: str) -> str:
    return topic.split()[-1].removeprefix("item/")


def _draw_fact(r: np.random.Generator, values: Pools, topic: str) -> dict[str, str]:
    def one(choices: list[str]) -> str:
        return choices[r.integers(len(choices))]

    if topic.startswith("item/"):
        item = topic[len("item/") :]
        if r.random() < 0.5:
            dollars = values.prices[item]
            price = price_of(dollars[r.integers(len(dollars))])
            return {"item": item, "price": price, "said": "with its item"}
        return {"item": item, "price": one(values.single["amount"]), "said": "alone"}
    if topic == "hours":
        return {"open": one(values.single["open"]), "close": one(values.single["close"])}
    if topic == "address":
        street = [*values.addresses][r.integers(len(values.addresses))]
        numbers = values.addresses[street]
        return {"address": f"{numbers[r.integers(len(numbers))]} {street} Street"}
    if topic == "closed":
        return {"day": one(values.single["day"])}
    if topic in ("deliver", "park"):
        return {"answer": "yes" if r.random() < 0.5 else "no"}
    slot = _CITY_SLOT.get(topic, topic)
    return {slot: one(values.single[slot])}


def _text(
    r: np.random.Generator, kind: str, name: str, company: str, facts: dict[str, dict[str, str]]
) -> str:
    bits = []
    item_form = BIT_FORMS["item"][r.integers(len(BIT_FORMS["item"]))]
    for topic, slots in facts.items():
        forms = BIT_FORMS.get(topic) or BIT_FORMS.get(f"{topic}.{slots.get('answer')}")
        form = forms[r.integers(len(forms))] if forms else item_form
        bits.append(form.format(**slots))
    r.shuffle(bits)
    if kind == CHAT:
        bits.insert(
            int(r.integers(len(bits) + 1)) if r.random() < 0.5 else 0, f"Your name is {name}."
        )
        return " ".join(["You enjoy having a good conversation.", *bits])
    trade = pools.TRADES[company.split()[-1]]
    text = f"You work for {company} which is a {trade} and your name is {name}."
    return f"{text} Information: {' '.join(bits)}" if bits else text


def greeting(r: np.random.Generator, persona: Persona) -> Reply:
    """Say who one is."""
    return _reply(r, f"greet.{persona.kind}", {"name": persona.name, "company": persona.company})


def reply_to(r: np.random.Generator, persona: Persona, kind: str, value: str = "") -> Reply:
    """Answer a question of a kind; ``value`` is the item or day asked for.

    A topic that the persona does not know is answered by saying so.
    """
    topic = topic_of(kind, value)
    if topic is None:
        slots = {"name": persona.name, "company": persona.company}
        facts = {"name": (persona.name,), "company": (persona.company,)}.get(kind, ())
        if kind == "company" and not persona.company:
            return _reply(r, "unknown", {}, ("don't",))
        return _reply(r, kind, slots, facts, is_copied=bool(facts))
    known = persona.facts.get(topic)
    if known is None:
        return _reply(r, "unknown", {}, ("don't",))
    if kind == "day":
        is_closed = value == known["day"]
        words = f"closed on {value}" if is_closed else f"open on {value}"
        return _reply(r, "closed" if is_closed else "opened", {"day": value}, (words,))
    if kind in ("deliver", "park"):
        said = {"deliver": ("yes", "don't deliver"), "park": ("is free", "no parking")}[kind]
        return _reply(r, f"{kind}.{known['answer']}", {}, (said[known["answer"] == "no"],))
    if kind == "price":
        is_short = known["said"] == "alone" or r.random() < 0.3
        return _reply(r, "cost" if is_short else "price", known, (known["price"],), is_copied=True)
    wanted = {"open": ("open",), "close": ("close",)}.get(kind, tuple(known))
    return _reply(r, kind, known, tuple(known[slot] for slot in wanted), is_copied=True)


_SLOTS = {
    "name": ("name",),
    "company": ("company",),
    "open": ("open",),
    "close": ("close",),
    "hours": ("open", "close"),
    "closed": ("day",),
    "opened": ("day",),
    "price": ("item", "price"),
    "cost": ("price",),
    "where": ("address",),
    "live": ("city",),
    "hobby": ("hobby",),
    "color": ("color",),
    "food": ("food",),
    "animal": ("animal",),
}


def _reply(
    r: np.random.Generator,
    kind: str,
    slots: dict[str, str],
    facts: tuple[str, ...] = (),
    is_copied: bool = False,
) -> Reply:
    forms = REPLY_FORMS[kind]
    names = forms[r.integers(len(forms))]
    keys = ["/".join([n, *(slots[s] for s in _SLOTS.get(n[: n.index("#")], ()))]) for n in names]
    return Reply(tuple(keys), facts, is_copied)
