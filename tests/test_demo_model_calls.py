"""Call plans of the demo model, on a bank of beeps: rows line up with what is said and when."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceProcessor

from examples.demo_model.bank.bank import Bank
from examples.demo_model.bank.making import ShardWriter
from examples.demo_model.bank.sayings import sayings
from examples.demo_model.speech.utterance import LABEL, Utterance, Word
from examples.demo_model.speech.voices import AGENT, AGENTS, CALLER, Speaker
from examples.demo_model.talk.call_rows import UNKNOWN, CallPlan, parse
from examples.demo_model.talk.calls import PACE, plan_call, plan_exam
from examples.demo_model.talk.domain import agent_keys, sentence, small_pools, text_of
from examples.demo_model.talk.pools import HELD_WORDS
from examples.demo_model.tokens import FILE, train
from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.model.prompt import tag_persona

FRAMES = 300
PAD, EPAD = 3, 0
WORD_S = 0.25


def beeps(written: list[str]) -> Utterance:
    """One beep a word."""
    count = int(WORD_S * 24000)
    beep = 0.1 * np.sin(np.arange(count) * 0.2).astype(np.float32)
    audio = np.concatenate([beep] * len(written))
    words = [Word(w, i * WORD_S, (i + 0.9) * WORD_S) for i, w in enumerate(written)]
    return Utterance(audio, words, np.ones(-(-len(audio) // LABEL), np.int16))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("bank")
    writer = ShardWriter()
    for key in agent_keys(small_pools()):
        writer.add(AGENTS[0], key, beeps([token.written for token in sentence(key)]))
    writer.add(AGENTS[0], "prompt/0", beeps(["Hello."] * 12))
    writer.write(folder / "agent")
    writer = ShardWriter()
    for number in range(6):
        speaker = Speaker(f"c{number}", CALLER, "none", {}, held=number > 3)
        for saying in sayings(np.random.default_rng(number), small_pools(), speaker.held):
            written = [token.written for part in saying.parts for token in part]
            writer.add(speaker, saying.key, beeps(written))
    writer.write(folder / "callers")
    return Bank.open(folder)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    return train(tmp_path_factory.mktemp("tokens") / FILE, 700, personas=150, callers=10)


def plans(
    bank: Bank, tokens: SentencePieceProcessor, held: bool = False, frames: int = FRAMES
) -> list[CallPlan]:
    r = np.random.default_rng(1)
    return [plan_call(r, bank, tokens, frames, held=held) for _ in range(150)]


def test_a_bank_gives_back_what_was_written(bank: Bank) -> None:
    agent = bank.speakers_of(AGENT)[0]
    i = bank.find(agent, "price#0/coffee/" + text_of_price(bank))
    said = beeps([token.written for token in sentence(bank.keys[i])])
    assert bank.audio_of(i).shape == (bank.frames[i] * FRAME_SAMPLES,)
    assert np.array_equal(bank.audio_of(i)[: len(said.audio)], np.round(said.audio * 32767))
    assert bank.labels_of(i).shape == (bank.frames[i] * FRAME_SAMPLES // LABEL,)
    assert [w.written for w in bank.words[i]] == [t.written for t in sentence(bank.keys[i])]
    audio = torch.empty(bank.num_samples, dtype=torch.int16)
    bank.copy_to(audio)
    first = bank.start[i]
    assert np.array_equal(audio[first : first + 100].numpy(), bank.audio_of(i)[:100])
    with pytest.raises(KeyError):
        bank.find(agent, "price#0/nothing/1 dollars")


def text_of_price(bank: Bank) -> str:
    return next(key.split("/")[2] for key in bank.keys if key.startswith("price#0/coffee/"))


def test_text_row_says_what_is_placed(bank: Bank, tokens: SentencePieceProcessor) -> None:
    for plan in plans(bank, tokens):
        whole = [p for p in plan.agent if p.end_frame == p.frame + bank.frames[p.utterance]]
        said = tokens.decode([int(t) for t in plan.text if t > PAD])
        for placed in whole:
            assert text_of(bank.keys[placed.utterance]) in said
        for placed in plan.agent:
            word = tokens.encode(bank.words[placed.utterance][0].written)
            assert list(plan.text[placed.frame - 2 :][: len(word)]) == word
            assert plan.text[placed.frame - 3] == EPAD


def test_agent_utterances_are_apart_and_within_the_call(
    bank: Bank, tokens: SentencePieceProcessor
) -> None:
    for plan in plans(bank, tokens):
        ends = 0
        for placed in plan.agent:
            assert ends + 3 <= placed.frame < placed.end_frame <= plan.frames
            ends = placed.end_frame


def test_beside_each_sentence_there_is_another_one_of_its_form(
    bank: Bank, tokens: SentencePieceProcessor
) -> None:
    pairs = [(p.utterance, p.other) for plan in plans(bank, tokens) for p in plan.agent]
    for pair in pairs:
        assert len({bank.keys[u].partition("/")[0] for u in pair}) == 1
        assert len({int(bank.speaker[u]) for u in pair}) == 1
    assert sum(mine != other for mine, other in pairs) > len(pairs) / 2


def test_agents_answer_soon_and_stop_when_interrupted(
    bank: Bank, tokens: SentencePieceProcessor
) -> None:
    cuts = 0
    # in short calls there is often no time left for the interruption
    for plan in plans(bank, tokens) + plans(bank, tokens, frames=130):
        starts = np.array([p.frame * 0.08 for p in plan.agent])
        for question in plan.questions:
            after = starts[starts > question.end_s] - question.end_s
            assert 0.28 <= after.min() <= 0.59
        for placed in plan.agent:
            if placed.end_frame < min(plan.frames, placed.frame + bank.frames[placed.utterance]):
                onsets = [q.start_s for q in plan.questions]
                cut_s = placed.end_frame * 0.08
                delay = cut_s - max((s for s in onsets if s < cut_s), default=0.0)
                assert 0.29 < delay < 0.52
                cuts += 1
    assert cuts > 10


def test_murmurs_do_not_stop_the_agent(bank: Bank, tokens: SentencePieceProcessor) -> None:
    murmurs = 0
    for plan in plans(bank, tokens):
        for utterance, sample in plan.caller:
            if parse(bank.keys[utterance])[0] == "bc":
                speaking = [
                    p for p in plan.agent if p.frame <= sample / FRAME_SAMPLES < p.end_frame + 3
                ]
                assert speaking
                murmurs += 1
    assert murmurs > 10


def test_silent_callers_are_asked_once(bank: Bank, tokens: SentencePieceProcessor) -> None:
    asked = 0
    for plan in plans(bank, tokens):
        keys = [bank.keys[p.utterance] for p in plan.agent]
        assert keys.count("still#0") <= 1
        if "still#0" in keys:
            assert keys[-1] == "still#0"
            last = plan.agent[-1].frame * 0.08
            ends = [p.end_frame * 0.08 for p in plan.agent[:-1]] + [q.end_s for q in plan.questions]
            assert 6.8 < last - max(ends) < 7.8
            asked += 1
    assert asked > 5


def test_facts_are_marked_in_the_row_and_stand_in_the_persona(
    bank: Bank, tokens: SentencePieceProcessor
) -> None:
    for plan in plans(bank, tokens):
        assert not (plan.fact & (plan.text <= PAD)).any()
        for question in plan.questions:
            for fact in question.facts:
                assert not question.is_copied or fact in plan.persona


def test_held_calls_use_held_words_alone(bank: Bank, tokens: SentencePieceProcessor) -> None:
    for held in (False, True):
        for plan in plans(bank, tokens, held):
            speaker = bank.speakers[plan.speaker]
            assert speaker.held == held
            text = plan.persona.split("your name is ")[-1].split("Your name is ")[-1]
            assert (text.split(".")[0].lower() in HELD_WORDS) == held
            for utterance, _ in plan.caller:
                kind, number, _, _ = parse(bank.keys[utterance])
                assert kind == "bc" or (number % 4 == 3) == held


def test_heard_words_come_after_they_are_spoken(bank: Bank, tokens: SentencePieceProcessor) -> None:
    for plan in plans(bank, tokens):
        assert (plan.heard != UNKNOWN).all()
        utterance, sample = plan.caller[0] if plan.caller else (None, 0)
        if utterance is not None:
            word = bank.words[utterance][0]
            frame = int(sample / FRAME_SAMPLES + word.off_s * 12.5 / plan.pace) + 2
            assert plan.heard[frame] == tokens.encode(word.written)[0]
            assert (plan.heard[:frame] == PAD).all()


def test_callers_of_training_speak_slower_and_faster_and_those_of_exams_as_they_are(
    bank: Bank, tokens: SentencePieceProcessor
) -> None:
    paces = [plan.pace for plan in plans(bank, tokens)]
    assert PACE[0] <= min(paces) < 0.9 and 1.1 < max(paces) <= PACE[1]
    caller = bank.speakers_of(CALLER, held=True)[0]
    draw = np.random.default_rng(0)
    assert plan_exam(draw, bank, tokens, FRAMES, held=True, caller=caller).pace == 1.0


def test_an_exam_asks_for_facts_at_even_times(bank: Bank, tokens: SentencePieceProcessor) -> None:
    caller = bank.speakers_of(CALLER, held=True)[0]
    r = np.random.default_rng(2)
    for held in (False, True):
        plan = plan_exam(r, bank, tokens, 400, held=held, caller=caller)
        assert not plan.agent and plan.questions
        assert np.allclose(np.diff([q.start_s for q in plan.questions]), 6.5)
        assert all(q.facts for q in plan.questions)


def test_a_plan_is_the_same_for_the_same_seed(bank: Bank, tokens: SentencePieceProcessor) -> None:
    first, second = (plan_call(np.random.default_rng(9), bank, tokens, FRAMES) for _ in range(2))
    assert first.persona == second.persona and np.array_equal(first.text, second.text)


def test_a_bank_that_grew_is_read_anew(tmp_path: Path) -> None:
    for name in ("first", "second"):
        writer = ShardWriter()
        writer.add(AGENTS[0], name, beeps(["one", "two"]))
        writer.write(tmp_path / name)
        opened, again = Bank.open(tmp_path), Bank.open(tmp_path)
        assert again.keys == opened.keys and again.shards == opened.shards
        assert name in opened.by_speaker[0]
    assert len(opened.keys) == 2


def test_personas_are_short_enough_to_be_read(bank: Bank, tokens: SentencePieceProcessor) -> None:
    lengths = [len(tokens.encode(tag_persona(plan.persona))) for plan in plans(bank, tokens)]
    assert 25 < np.median(lengths) < 80 and max(lengths) < 140
