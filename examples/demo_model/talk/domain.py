"""The closed domain: what a persona may say of itself, and every sentence that an agent can say.

A **key** names one thing that is said: ``price#0/red scarf/58`` is the first form of the sentence
``price`` with its slots filled, ``ask.price#2/red scarf`` the third phrasing of a question.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from examples.demo_model.talk import pools
from examples.demo_model.talk.phrases import FORMS, PHRASINGS

_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_SLOT = re.compile(r"{(\w+)}")
_SPOKEN_ALONE = {
    "live": "city",
    "hobby": "hobby",
    "color": "color",
    "food": "food",
    "animal": "animal",
}
"""Kinds of sentence with one slot, and its pool."""
_TRADES_A_FIRST = 10
_PRICES_AN_ITEM = 12
_NUMBERS_A_STREET = 28


@dataclass(frozen=True, slots=True)
class Token:
    """One written word, how it is spoken (often the same), and whether it is a fact."""

    written: str
    spoken: tuple[str, ...]
    is_fact: bool


@dataclass(frozen=True)
class Pools:
    """What may fill the slots: all of it, a small part for trying out, or what a bank holds."""

    names: list[str]
    companies: list[str]
    prices: Mapping[str, list[int]]
    addresses: Mapping[str, list[int]]
    single: Mapping[str, list[str]] = field(
        default_factory=lambda: {
            "day": pools.DAYS,
            "city": pools.CITIES,
            "hobby": pools.HOBBIES,
            "color": pools.COLORS,
            "food": pools.FOODS,
            "animal": pools.ANIMALS,
            "open": [f"{hour} am" for hour in pools.OPENING],
            "close": [f"{hour} pm" for hour in pools.CLOSING],
            "amount": [price_of(dollars) for dollars in pools.PRICES],
        }
    )

    def only(self, held: bool) -> "Pools":
        """Only the values of training, or only those kept out of it."""
        return Pools(
            [name for name in self.names if pools.is_held(name) == held],
            [name for name in self.companies if pools.is_held(name.split()[0]) == held],
            {item: v for item, v in self.prices.items() if pools.is_held(item) == held},
            {street: v for street, v in self.addresses.items() if pools.is_held(street) == held},
            self.single,
        )

    def within(self, keys: AbstractSet[str]) -> "Pools":
        """Only the values of which every sentence is in ``keys``: what a small bank can say."""

        def said(kind: str, value: str) -> bool:
            return all(f"{kind}#{i}/{value}" in keys for i in range(len(FORMS[kind])))

        prices = {
            item: [p for p in dollars if said("price", f"{item}/{price_of(p)}")]
            for item, dollars in self.prices.items()
        }
        addresses = {
            street: [n for n in numbers if said("where", f"{n} {street} Street")]
            for street, numbers in self.addresses.items()
        }
        singles = {
            slot: [value for value in self.single[slot] if said(kind, value)]
            for kind, slot in _SPOKEN_ALONE.items()
        }
        return Pools(
            [name for name in self.names if said("name", name)],
            [name for name in self.companies if said("company", name)],
            {item: dollars for item, dollars in prices.items() if dollars},
            {street: numbers for street, numbers in addresses.items() if numbers},
            {**self.single, **singles},
        )


def price_of(dollars: int) -> str:
    """Say a price as it is written in personas and answers."""
    return f"{dollars} dollars"


@lru_cache(maxsize=1)
def full_pools() -> Pools:
    """Give the whole domain: a company is a first word with some of the trades, and so on.

    Which prices an item, which numbers a street may have is drawn once, with fixed seeds, so that
    the sentences of an agent stay a closed set.
    """
    trades = list(pools.TRADES)
    companies = [
        f"{first} {trade}"
        for i, first in enumerate(pools.FIRSTS)
        for j, trade in enumerate(trades)
        if (5 * i + 7 * j) % len(trades) < _TRADES_A_FIRST
    ]
    return Pools(
        pools.NAMES,
        companies,
        {item: _drawn(7, i, _PRICES_AN_ITEM) for i, item in enumerate(pools.ITEMS)},
        {street: _drawn(8, i, _NUMBERS_A_STREET) for i, street in enumerate(pools.STREETS)},
    )


def small_pools() -> Pools:
    """Give a domain that takes seconds to speak: a few values of each pool, held ones included."""
    whole = full_pools()
    parts = [whole.only(held) for held in (False, True)]
    return Pools(
        [name for part, n in zip(parts, (5, 2), strict=True) for name in part.names[::7][:n]],
        [name for part, n in zip(parts, (3, 1), strict=True) for name in part.companies[::9][:n]],
        {i: v[:3] for p, n in zip(parts, (6, 2), strict=True) for i, v in [*p.prices.items()][:n]},
        {
            s: v[:2]
            for p, n in zip(parts, (3, 1), strict=True)
            for s, v in [*p.addresses.items()][:n]
        },
        {**whole.single, "city": pools.CITIES[:6], "hobby": pools.HOBBIES[:6]},
    )


def agent_keys(values: Pools) -> list[str]:
    """Enumerate every sentence that an agent can be made to say, in a fixed order."""
    keys = []
    for kind, forms in FORMS.items():
        for number, form in enumerate(forms):
            for filling in _fillings(form, values):
                keys.append("/".join([f"{kind}#{number}", *filling]))
    return keys


def _fillings(form: str, values: Pools) -> Iterator[tuple[str, ...]]:
    slots = tuple(_SLOT.findall(form))
    if slots == ("item", "price"):
        for item, dollars in values.prices.items():
            yield from ((item, price_of(p)) for p in dollars)
    elif slots == ("address",):
        for street, numbers in values.addresses.items():
            yield from ((f"{n} {street} Street",) for n in numbers)
    else:
        of = {"name": values.names, "company": values.companies, "price": values.single["amount"]}
        yield from itertools.product(*[of.get(s) or values.single[s] for s in slots])


@lru_cache(maxsize=65536)
def sentence(key: str) -> tuple[Token, ...]:
    """Give the words of an agent's sentence or of a caller's question by its key.

    What stands after a ``+`` (a prefix, a pause) is no part of the sentence.
    """
    name, *values = key.partition("+")[0].split("/")
    kind, _, number = name.partition("#")
    forms = PHRASINGS[kind[4:]] if kind.startswith("ask.") else FORMS[kind]
    return _fill(forms[int(number)], values)


def text_of(key: str) -> str:
    """Give what is said under a key, as it is written."""
    return " ".join(token.written for token in sentence(key))


def _fill(form: str, values: list[str]) -> tuple[Token, ...]:
    tokens, left = [], list(values)
    for word in form.split():
        slot = _SLOT.search(word)
        if slot is None:
            written = word.lstrip("*")
            tokens.append(Token(written, (written,), word.startswith("*")))
            continue
        filled = word[: slot.start()] + left.pop(0) + word[slot.end() :]
        tokens += [Token(part, spoken_form(part), True) for part in filled.split()]
    return tuple(tokens)


def spoken_form(written: str) -> tuple[str, ...]:
    """Say how a written word is spoken: ``58.`` is fifty eight, ``am`` two letters."""
    bare = written.rstrip(".,?!")
    tail = written[len(bare) :]
    if bare in ("am", "pm"):
        return (bare.upper() + tail,)
    if not bare.isdigit():
        return (written,)
    number = int(bare)
    if number < len(_ONES):
        return (_ONES[number] + tail,)
    ones = (_ONES[number % 10],) if number % 10 else ()
    words = (_TENS[number // 10], *ones)
    return (*words[:-1], words[-1] + tail)


def _drawn(salt: int, index: int, count: int) -> list[int]:
    r = np.random.default_rng([salt, index])
    return sorted(int(n) for n in r.choice(list(pools.PRICES), count, replace=False))
