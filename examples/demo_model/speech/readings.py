"""Adds to the table of readings the words of the domain that the lexicon lacks.

Run it after new names: ``python -m examples.demo_model.speech.readings``. The spelling net of the
TTS reads each new word once; look at what it prints, and mend the table by hand where a reading is
wrong.
"""

import json

from hibari.g2p import G2P

from examples.demo_model.speech.speech import READINGS
from examples.demo_model.talk.domain import agent_keys, full_pools, sentence
from examples.demo_model.talk.phrases import PHRASINGS, PREFIXES


def domain_words() -> list[str]:
    """List every spoken word of agents and callers."""
    words = {w for key in agent_keys(full_pools()) for t in sentence(key) for w in t.spoken}
    words |= {w for forms in PHRASINGS.values() for form in forms for w in form.split()}
    words |= {w for prefix in PREFIXES for w in prefix.split()}
    return sorted(word for word in words if "{" not in word)


def main() -> None:
    """Read what is missing and write the table."""
    table: dict[str, str] = json.loads(READINGS.read_text(encoding="utf-8"))
    net = G2P().oov

    def read(word: str) -> str:
        if word not in table:
            table[word] = net(word)
            print(word, table[word])
        return table[word]

    lexicon = G2P(oov=read)
    for word in domain_words():
        lexicon(word)
    text = json.dumps(dict(sorted(table.items())), ensure_ascii=False, indent=0)
    READINGS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
