"""What a planned call is, and its rows of text: what the agent says, what the caller said.

A plan is made in about a millisecond from numbers alone; the audio is put together elsewhere.
Agents speak on the frame grid, callers at any sample.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from examples.demo_model.bank.bank import Bank
from examples.demo_model.speech.voices import AGENT, CALLER
from examples.demo_model.talk.domain import Pools, full_pools, sentence
from examples.demo_model.talk.phrases import phrasings
from examples.demo_model.talk.pools import is_held
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.model.prompt import PAD_TOKEN
from livekit_personaplex.model.text import EPAD_TOKEN

FRAMES_A_SECOND = SAMPLE_RATE_HZ / FRAME_SAMPLES
LEAD_FRAMES = 2
"""A word's text begins this long before the word is heard."""
HEARD_FRAMES = 2
"""A caller's word is taken for heard this long after its end."""
UNKNOWN = -1
_HEARD_TAIL_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Placement:
    """An agent's utterance in the call; an ``end_frame`` before its natural end cuts it.

    ``other`` is one of the same form and voice, with other facts if there are any.
    """

    utterance: int
    other: int
    frame: int
    end_frame: int


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller asked.

    Attributes:
        start_s: When he begins to speak; ``end_s`` when he ends.
        facts: What a right answer contains, as written; nothing where any answer will do.
        is_copied: Whether the facts stand in the persona's text.
    """

    kind: str
    start_s: float
    end_s: float
    facts: tuple[str, ...]
    is_copied: bool = False


@dataclass(slots=True)
class CallPlan:
    """One call.

    Attributes:
        persona: Its text, untagged.
        voice: The agent, an index into the bank's speakers.
        prompt: The utterance that is the voice prompt.
        frames: How long it is.
        agent: The agent's utterances, in order, apart.
        caller: The caller's utterances and the sample at which each begins.
        text: ``[frames] int16`` agent's text row.
        heard: ``[frames] int16`` pieces of the caller's words; -1 where they are not known.
        fact: ``[frames] bool`` text pieces that depend on the persona.
        questions: What is asked.
        speaker: The caller.
        pace: How fast his utterances are played.
    """

    persona: str
    voice: int
    prompt: int
    frames: int
    agent: list[Placement]
    caller: list[tuple[int, int]]
    text: NDArray[np.int16]
    heard: NDArray[np.int16]
    fact: NDArray[np.bool_]
    questions: list[Question]
    speaker: int = -1
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Ask:
    """An utterance of a caller: which kind of question, about what, and whether it is plain."""

    utterance: int
    kind: str
    value: str
    is_plain: bool


@dataclass(eq=False)
class Planner:
    """What plans need of a bank and a vocabulary, worked out once and kept."""

    bank: Bank
    tokens: SentencePieceProcessor
    agents: list[int] = field(init=False)
    _pieces: dict[str, list[int]] = field(default_factory=dict)
    _words: dict[int, list[tuple[float, float, list[int], bool]]] = field(default_factory=dict)
    _pools: dict[tuple[int, bool], Pools] = field(default_factory=dict)
    _prompts: dict[int, list[int]] = field(default_factory=dict)
    _asks: dict[tuple[int, bool], list[Ask]] = field(default_factory=dict)
    _forms: dict[int, dict[str, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List the agents."""
        self.agents = self.bank.speakers_of(AGENT)

    def callers(self, held: bool) -> list[int]:
        """List callers of training, or the held ones of the same engines."""
        engines = self.bank.speakers
        return [i for i in self.bank.speakers_of(CALLER, held) if engines[i].engine != "flite"]

    def pieces(self, written: str) -> list[int]:
        """Token ids of a word."""
        ids = self._pieces.get(written)
        if ids is None:
            ids = self._pieces[written] = self.tokens.encode(written)
        return ids

    def words(self, utterance: int) -> list[tuple[float, float, list[int], bool]] | None:
        """Onset and end in frames, pieces, and whether it is a fact, of each word."""
        kept = self._words.get(utterance)
        if kept is not None:
            return kept
        words = self.bank.words[utterance]
        if words is None:
            return None
        key = self.bank.keys[utterance]
        flags = [False] * len(words)
        if self.bank.speakers[self.bank.speaker[utterance]].role == AGENT and "prompt/" not in key:
            flags = [token.is_fact for token in sentence(key)]
        made = [
            (w.on_s * FRAMES_A_SECOND, w.off_s * FRAMES_A_SECOND, self.pieces(w.written), flag)
            for w, flag in zip(words, flags, strict=True)
        ]
        self._words[utterance] = made
        return made

    def pools(self, voice: int, held: bool) -> Pools:
        """What an agent of this bank can say of the training pools, or of the held ones."""
        made = self._pools.get((voice, held))
        if made is None:
            said = self.bank.by_speaker[voice].keys()
            made = self._pools[voice, held] = full_pools().only(held).within(said)
        return made

    def prompts(self, voice: int) -> list[int]:
        """Voice prompts of an agent."""
        made = self._prompts.get(voice)
        if made is None:
            said = self.bank.by_speaker[voice]
            made = self._prompts[voice] = [i for k, i in said.items() if k.startswith("prompt/")]
        return made

    def of_form(self, voice: int, key: str) -> list[int]:
        """An agent's utterances of the form that a key has, its own one among them."""
        forms = self._forms.get(voice)
        if forms is None:
            forms = self._forms[voice] = {}
            for said, utterance in self.bank.by_speaker[voice].items():
                forms.setdefault(said.partition("/")[0], []).append(utterance)
        return forms[key.partition("/")[0]]

    def asks(self, caller: int, held: bool) -> list[Ask]:
        """What a caller can ask in trained words, or in held ones."""
        made = self._asks.get((caller, held))
        if made is None:
            made = [
                Ask(utterance, kind, value, suffix == "")
                for key, utterance in self.bank.by_speaker[caller].items()
                for kind, number, value, suffix in [parse(key)]
                if kind == "bc"
                or (number in phrasings(kind, held) and (kind != "price" or is_held(value) == held))
            ]
            self._asks[caller, held] = made
        return made

    def row(
        self,
        placed: list[tuple[int, float, int]],
        frames: int,
        *,
        is_heard: bool,
        pace: float = 1.0,
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Write a row of text: each word's pieces near the time at which it is said.

        Args:
            placed: Utterances, when they begin and the frame at which they are cut, in frames.
            frames: Length of the row.
            is_heard: The caller's words, after their ends; else the agent's, before their onsets.
            pace: How fast the utterances are played.

        Returns:
            The row, and which of its pieces are facts.
        """
        text = np.full(frames, PAD_TOKEN, np.int16)
        fact = np.zeros(frames, np.bool_)
        free = 0
        for utterance, begin, cut in placed:
            words = self.words(utterance)
            if words is None:
                text[int(begin) : min(cut, frames) + _HEARD_TAIL_FRAMES] = UNKNOWN
                free = max(free, min(cut, frames) + _HEARD_TAIL_FRAMES)
                continue
            for on, off, ids, is_fact in words:
                wanted = (
                    int(begin + off / pace) + HEARD_FRAMES
                    if is_heard
                    else int(begin + on / pace) - LEAD_FRAMES
                )
                at = max(wanted, free)
                end = min(at + len(ids), frames if is_heard else min(cut, frames))
                if end <= at:
                    break
                if not is_heard and at > free and at > 0:
                    text[at - 1] = EPAD_TOKEN
                text[at:end] = ids[: end - at]
                fact[at:end] = is_fact
                free = end
        return text, fact


def parse(key: str) -> tuple[str, int, str, str]:
    """Take a caller's key apart: kind, number of the phrasing, value, suffix."""
    whole, _, suffix = key.partition("+")
    head, _, value = whole.partition("/")
    kind, _, number = head.removeprefix("ask.").partition("#")
    return kind, int(number), value, suffix


@lru_cache(maxsize=4)
def planner(bank: Bank, tokens: SentencePieceProcessor) -> Planner:
    """Give the planner of a bank; the same bank and vocabulary have the same one."""
    return Planner(bank, tokens)
