"""How well a recogniser reads the agents' speech before and after the codec.

``python -m examples.demo_model.measuring.recognizer WORK --sentences 40`` prints the word error of
PocketSphinx with its general English model on held-out sentences of each agent: as they were
spoken, and through the codec of WORK (or ``--codec FILE``).
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from pocketsphinx import Decoder

from examples.demo_model.bank.bank import Bank
from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.codec.scores import spread
from examples.demo_model.codec.stage import held_utterances
from examples.demo_model.measuring.word_error import distance, normal_words
from examples.demo_model.sizes import SIZES
from examples.demo_model.talk.domain import sentence
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

_RATE = 16_000
_PROMPT = "prompt"
_PAUSE = SAMPLE_RATE_HZ // 5
_LEAD_FRAMES = 32
"""Silence before an utterance, as in a call: the codec's window is full."""


class Recognizer:
    """PocketSphinx with the model that its package brings."""

    def __init__(self) -> None:
        """Load the model; about a second."""
        self._decoder = Decoder(samprate=_RATE, loglevel="FATAL")

    def words(self, audio: NDArray[np.float32]) -> list[str]:
        """Read an utterance at 24 kHz; a pause is added at both ends."""
        padded = np.pad(audio, _PAUSE)
        heard = soxr.resample(padded, SAMPLE_RATE_HZ, _RATE)
        samples = np.clip(np.round(heard * 32767), -32768, 32767).astype(np.int16)
        self._decoder.start_utt()
        self._decoder.process_raw(samples.tobytes(), full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return normal_words(hypothesis.hypstr) if hypothesis else []

    def word_error(
        self, utterances: Iterable[NDArray[np.float32]], texts: Iterable[Sequence[str]]
    ) -> float:
        """Give wrong, missing and added words over the words of all texts."""
        errors = count = 0
        for audio, text in zip(utterances, texts, strict=True):
            errors += distance(list(text), self.words(audio))
            count += len(text)
        return errors / max(count, 1)


def spoken(key: str) -> list[str]:
    """Give the words that are said for a key."""
    return normal_words(" ".join(word for token in sentence(key) for word in token.spoken))


@torch.no_grad()
def resynthesis(mimi: Mimi, audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Send whole frames through the codec, with silence before them as in a call."""
    lead = np.zeros(_LEAD_FRAMES * FRAME_SAMPLES, dtype=np.float32)
    sent = torch.from_numpy(np.concatenate((lead, audio)))[None, None].to(mimi.device)
    back: NDArray[np.float32] = mimi.decode(mimi.encode(sent))[0, 0].cpu().numpy()
    return back[len(lead) :]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the word errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--codec", type=Path, help="default: the one of WORK")
    parser.add_argument("--sizes", default="small", choices=list(SIZES))
    parser.add_argument("--sentences", type=int, default=40, help="of each voice")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    bank, recognizer = Bank.open(options.work / "bank"), Recognizer()
    path = options.codec or options.work / "codec" / FILE_NAME
    mimi = Mimi.load(path, SIZES[options.sizes].mimi).to(options.device)
    for name, held in held_utterances(bank).items():
        answers = [u for u in held if not bank.keys[u].startswith(_PROMPT)]
        chosen = spread(answers, options.sentences)
        texts = [spoken(bank.keys[utterance]) for utterance in chosen]
        originals = [bank.audio_of(u).astype(np.float32) / np.float32(32768) for u in chosen]
        before = recognizer.word_error(originals, texts)
        after = recognizer.word_error((resynthesis(mimi, audio) for audio in originals), texts)
        print(
            f"{name}: word error {before:.3f} as spoken, {after:.3f} through the codec", flush=True
        )


if __name__ == "__main__":
    main()
