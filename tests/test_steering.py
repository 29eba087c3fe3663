"""Given words are said exactly, in order and alone; afterwards, and beside it, nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.given_words import (
    FIRST_PATIENCE,
    MAX_GIVEN_TOKENS,
    GivenWords,
    find_word_starts,
    lay_out_words,
)
from livekit_personaplex.model.steering import Steering
from livekit_personaplex.sampling import Sampling
from tests.conformance import load_model, make_core, user_frames

CHECKPOINT = "tiny16"
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PAD, EPAD = 3, 0
OWN, OWN_REST, HELLO, HEL, LO, YOU = 10, 11, 20, 21, 22, 23
STARTS = (OWN, HELLO, HEL, YOU)


def steering(num_slots: int = 1) -> Steering:
    word_starts = torch.zeros(40, dtype=torch.bool)
    word_starts[list(STARTS)] = True
    return Steering.create(num_slots, word_starts)


def entries(*pairs: tuple[int, int]) -> GivenWords:
    return GivenWords(np.array(pairs, dtype=np.int64))


def speak(state: Steering, samples: Sequence[int], *, previous: int = PAD) -> list[int]:
    """What slot 0 says when the model samples these tokens."""
    said = []
    for sample in samples:
        text = state.choose(
            torch.tensor([sample]),
            previous=torch.tensor([previous]),
            mask=torch.ones(1, dtype=torch.bool),
        )
        previous = int(text)
        said.append(previous)
    return said


def test_the_model_chooses_when_and_the_given_words_what() -> None:
    state = steering()
    state.give(0, entries((HEL, 9), (LO, 0), (YOU, 9)), position=0)
    sampled = [PAD, EPAD, OWN, OWN_REST, PAD, EPAD, OWN, OWN, PAD]
    assert speak(state, sampled) == [PAD, EPAD, HEL, LO, PAD, EPAD, YOU, OWN, PAD]


def test_a_silent_model_speaks_when_patience_is_over() -> None:
    state = steering()
    state.give(0, entries((HELLO, 3), (YOU, 2)), position=0)
    said = speak(state, [PAD] * 9)
    assert said == [PAD, PAD, PAD, EPAD, HELLO, PAD, PAD, EPAD, YOU]


def test_a_word_of_the_models_own_is_finished_first() -> None:
    state = steering()
    assert speak(state, [PAD, OWN]) == [PAD, OWN]
    state.give(0, entries((YOU, 9)), position=0)
    assert speak(state, [OWN_REST, OWN_REST, OWN], previous=OWN) == [OWN_REST, OWN_REST, YOU]


def test_going_on_with_a_given_word_becomes_the_sign_of_the_next() -> None:
    state = steering()
    state.give(0, entries((HELLO, 9), (YOU, 9)), position=0)
    assert speak(state, [OWN, OWN_REST, OWN_REST]) == [HELLO, EPAD, YOU]


def test_held_silence_ends_with_its_release() -> None:
    state = steering()
    state.held[0] = True
    state.give(0, entries((HELLO, 0)), position=0)
    assert speak(state, [OWN, EPAD, PAD]) == [PAD] * 3
    state.held[0] = False
    assert speak(state, [OWN, OWN]) == [HELLO, OWN]


def test_rows_that_are_masked_or_not_steered_are_left_alone() -> None:
    state = steering(3)
    state.give(0, entries((HELLO, 0)), position=0)
    state.give(1, entries((HELLO, 0)), position=0)
    before = state.said.clone(), state.pads.clone(), state.in_own_word.clone()
    sampled = torch.tensor([OWN, OWN, OWN_REST])
    mask = torch.tensor([False, False, False])
    state.choose(sampled, previous=torch.tensor([PAD] * 3), mask=mask)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, (state.said, state.pads, state.in_own_word), strict=True)
    )
    text = state.choose(sampled, previous=torch.tensor([PAD] * 3), mask=~mask)
    assert text.tolist() == [HELLO, HELLO, OWN_REST]
    assert state.said.tolist() == [1, 1, 0]


def test_the_ring_of_words_wraps() -> None:
    state = steering()
    position = 0
    for _ in range(3):
        words = entries(*[(HELLO, 0)] * (MAX_GIVEN_TOKENS - 5))
        state.give(0, words, position=position)
        position += len(words)
        assert speak(state, [OWN] * len(words)) == [HELLO] * len(words)
    assert speak(state, [OWN]) == [OWN]


@dataclass
class Talk:
    """A conversation on a core, with what happens to it before given steps."""

    core: EngineCore
    slot: int
    seed: int
    says: Mapping[int, Sequence[str]] = field(default_factory=dict)
    released_at: int | None = None
    tokens: list[NDArray[np.int64]] = field(default_factory=list)
    num_said: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def open(self) -> None:
        plan = self.core.prepare("TINY0", "You are kind.")
        self.core.open(self.slot, plan, Sampling(seed=self.seed))
        if self.released_at is not None:
            self.core.hold(self.slot)
        self._steer()

    def frame(self) -> NDArray[np.int16] | None:
        return user_frames(CHECKPOINT)[len(self.tokens) - 1] if self.tokens else None

    def take(self, tokens: NDArray[np.int64], num_said: int) -> None:
        self.tokens.append(tokens)
        self.num_said.append(num_said)
        self._steer()

    def _steer(self) -> None:
        for text in self.says.get(len(self.tokens), ()):
            self.ends.append(self.core.say(self.slot, self.core.prepare_words(text)))
        if self.released_at == len(self.tokens) > 0:
            self.core.release(self.slot)

    @property
    def text(self) -> list[int]:
        return [int(tokens[0]) for tokens in self.tokens]


def run(talks: Sequence[Talk], steps: int) -> None:
    """Open the conversations and step them together."""
    core = talks[0].core
    for talk in talks:
        talk.open()
    opened: set[int] = set()
    while len(opened) < len(talks):
        opened.update(core.tick({}).opened)
    by_slot = {talk.slot: talk for talk in talks}
    for _ in range(steps):
        for step in core.tick({talk.slot: talk.frame() for talk in talks}).steps:
            by_slot[step.slot].take(step.tokens, step.num_said)
    for talk in talks:
        core.close(talk.slot)


def words_in(text: Sequence[int]) -> list[int]:
    return [token for token in text if token not in (PAD, EPAD)]


def ids(text: str) -> list[int]:
    return load_model(CHECKPOINT).tokenizer.encode(text)


GREETING = "Hello there, how can I help?"


def test_a_greeting_is_said_exactly_and_then_the_model_is_free() -> None:
    core = make_core(CHECKPOINT)
    talk = Talk(core, 0, seed=3, says={0: [GREETING]})
    run([talk], 70)
    end = talk.num_said.index(talk.ends[0]) + 1
    said = words_in(talk.text[:end])
    assert said == ids(GREETING)
    assert talk.text[: FIRST_PATIENCE + 2] != [PAD] * (FIRST_PATIENCE + 2)
    rest = words_in(talk.text[end:])
    assert rest and rest[: len(said)] != said


@pytest.mark.parametrize("at", [1, 2, 13, 40])
def test_words_said_in_mid_call_come_out_whole_and_alone(at: int) -> None:
    core = make_core(CHECKPOINT)
    talk = Talk(core, 0, seed=5, says={at: ["Your table is ready.", "Goodbye."]})
    run([talk], at + 60)
    free = Talk(core, 0, seed=5)
    run([free], at)
    assert talk.text[:at] == free.text
    begin = next(n for n, said in enumerate(talk.num_said) if said > 0)
    end = talk.num_said.index(talk.ends[1]) + 1
    assert words_in(talk.text[begin:end]) == ids("Your table is ready.") + ids("Goodbye.")
    kept = [bool(token in (PAD, EPAD)) or n < begin for n, token in enumerate(talk.text[:end])]
    assert kept.count(False) == talk.ends[1]


@pytest.mark.parametrize(
    ("group_slots", "device"),
    [(1, "cpu"), (3, "cpu"), pytest.param(3, "cuda", marks=[pytest.mark.gpu, NEEDS_GPU])],
)
def test_what_one_is_given_to_say_changes_nothing_for_the_others(
    group_slots: int, device: str
) -> None:
    core = make_core(CHECKPOINT, num_slots=3, group_slots=group_slots, device=device)
    alone = [Talk(core, slot, seed=slot + 1) for slot in range(3)]
    run(alone, 50)
    together = [
        Talk(core, 0, seed=1),
        Talk(core, 1, seed=2, says={0: ["Hello there."], 9: ["Stop.", "Now."]}),
        Talk(core, 2, seed=3),
    ]
    run(together, 50)
    for slot in (0, 2):
        assert np.array_equal(together[slot].tokens, alone[slot].tokens)
    steered = together[1]
    end = steered.num_said.index(steered.ends[-1]) + 1
    expected = ids("Hello there.") + ids("Stop.") + ids("Now.")
    assert words_in(steered.text[:end]) == expected


def test_a_held_conversation_is_silent_until_it_is_released() -> None:
    core = make_core(CHECKPOINT)
    talk = Talk(core, 0, seed=3, says={0: [GREETING]}, released_at=25)
    run([talk], 80)
    assert talk.text[:25] == [PAD] * 25
    end = talk.num_said.index(talk.ends[0]) + 1
    assert words_in(talk.text[25:end]) == ids(GREETING)


def test_a_recycled_slot_has_nothing_left_to_say() -> None:
    core = make_core(CHECKPOINT)
    fresh = Talk(core, 0, seed=9)
    run([fresh], 25)
    for former in (
        Talk(core, 0, seed=1, says={0: [GREETING], 3: [GREETING]}),
        Talk(core, 0, seed=1, released_at=1000),
    ):
        run([former], 7)
        again = Talk(core, 0, seed=9)
        run([again], 25)
        assert np.array_equal(again.tokens, fresh.tokens)


def test_words_taken_back_are_not_said() -> None:
    core = make_core(CHECKPOINT)
    talk = Talk(core, 0, seed=3)
    talk.open()
    core.say(0, core.prepare_words("one two three"))
    core.stop_saying(0)
    end = core.say(0, core.prepare_words("four"))
    assert end == len(ids("one two three")) + len(ids("four"))
    while not core.tick({}).opened:
        pass
    while not talk.num_said or talk.num_said[-1] < end:
        (step,) = core.tick({0: talk.frame()}).steps
        talk.take(step.tokens, step.num_said)
    assert words_in(talk.text) == ids("four")


def test_too_much_to_say_is_refused_and_changes_nothing() -> None:
    core = make_core(CHECKPOINT)
    with pytest.raises(ConfigError, match="at most|may have 512 tokens"):
        core.prepare_words("word " * 2000)
    talk = Talk(core, 0, seed=3)
    talk.open()
    words = core.prepare_words("hello " * 40)
    while len(words) * (len(talk.ends) + 1) <= MAX_GIVEN_TOKENS:
        talk.ends.append(core.say(0, words))
    with pytest.raises(ConfigError, match="wait to be said"):
        core.say(0, words)
    core.stop_saying(0)
    assert core.say(0, words) == talk.ends[-1] + len(words)


def test_any_text_is_laid_out_as_the_tokenizer_writes_it() -> None:
    core = make_core(CHECKPOINT)
    tokenizer = load_model(CHECKPOINT).tokenizer
    for text in ("Zoë's café, 24/7: ☕!", "tab\tnew\nline\x00end", "日本語", "a" * 300):
        words = core.prepare_words(text)
        printable = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        assert words.entries[:, 0].tolist() == tokenizer.encode(printable)
        assert words.entries[0, 1] == FIRST_PATIENCE
    assert core.prepare_words(" \n").entries.tolist() == [[EPAD, FIRST_PATIENCE]]


def test_patience_is_for_beginnings_of_words_only() -> None:
    pieces = {5: " Hel", 6: "lo", 7: ",", 8: " you", 9: ".", 10: " there", 11: b"\xc3", 12: ""}

    class Pieces:
        def piece(self, token: int) -> str | bytes:
            return pieces.get(token, "")

    words = lay_out_words([5, 6, 7, 12, 8, 9, 10, 11], Pieces())
    assert words.entries[:, 0].tolist() == [5, 6, 7, 8, 9, 10, 11]
    patience = words.entries[:, 1].tolist()
    assert [p > 0 for p in patience] == [True, False, False, True, False, True, False]
    assert patience[5] > patience[3] > 0, "a sentence ends longer than a clause"
    assert find_word_starts(Pieces(), 13).nonzero()[0].tolist() == [5, 8, 10]
