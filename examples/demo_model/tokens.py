"""Stage ``tokens``: the text vocabulary, trained on personas, questions and answers of training.

Words kept out of training are kept out of here too: a whole piece for one of them would never be
trained, while its smaller pieces are known from other words.
"""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sentencepiece

from examples.demo_model.bank.sayings import sayings
from examples.demo_model.talk.domain import full_pools, text_of
from examples.demo_model.talk.persona import CHAT, SERVICE, draw_persona, greeting, reply_to
from examples.demo_model.talk.phrases import PHRASINGS

FILE = "tokenizer_spm_32k_3.model"
"""Its name in a checkpoint."""
VOCABULARY = 1100
_PERSONAS, _CALLERS = 6000, 1000
_REPLIES_A_PERSONA = 6
_ASKED = sorted(set(PHRASINGS) - {"bc", "price"})


def corpus(personas: int = _PERSONAS, callers: int = _CALLERS) -> Iterator[str]:
    """Give lines as personas are tagged, as agents and as callers speak."""
    r = np.random.default_rng(5)
    values = full_pools().only(held=False)
    days = values.single["day"]
    for _ in range(personas):
        kind = CHAT if r.random() < 0.3 else SERVICE
        persona = draw_persona(r, values, kind, [], int(r.integers(1, 8)))
        yield f"<system> {persona.text} <system>"
        said = [*greeting(r, persona).keys]
        for kind in r.choice(_ASKED, _REPLIES_A_PERSONA).tolist():
            said += reply_to(r, persona, kind, days[r.integers(7)] if kind == "day" else "").keys
        yield " ".join(text_of(key) for key in said)
    for _ in range(callers):
        for saying in sayings(r, values, held=False):
            yield " ".join(token.written for part in saying.parts for token in part)


def train(
    path: Path, size: int = VOCABULARY, personas: int = _PERSONAS, callers: int = _CALLERS
) -> sentencepiece.SentencePieceProcessor:
    """Train the vocabulary and write it to ``path``."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(personas, callers),
        model_writer=model,
        vocab_size=size,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=3,
        num_threads=1,
        minloglevel=1,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the text vocabulary.")
    parser.add_argument("work", type=Path)
    processor = train(parser.parse_args().work / FILE)
    lines = list(corpus(300, 3))
    lengths = [len(processor.encode(line)) for line in lines if line.startswith("<system>")]
    print(f"{processor.vocab_size()} pieces; a persona has {np.mean(lengths):.0f} on average, ")
    print(f"{np.percentile(lengths, 95):.0f} at the 95th percentile, {max(lengths)} at most")


if __name__ == "__main__":
    main()
