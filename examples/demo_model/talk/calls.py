"""How a call goes: who begins, what is asked, interruptions, murmurs, silences."""

import math
from dataclasses import replace

import numpy as np
from sentencepiece import SentencePieceProcessor

from examples.demo_model.bank.bank import Bank
from examples.demo_model.talk.call_rows import (
    FRAMES_A_SECOND,
    Ask,
    CallPlan,
    Placement,
    Planner,
    Question,
    planner,
)
from examples.demo_model.talk.persona import (
    CHAT,
    SERVICE,
    TOPICS,
    Persona,
    Reply,
    draw_persona,
    greeting,
    may_join,
    reply_to,
    topic_of,
)
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

__all__ = ["CallPlan", "Placement", "Question", "plan_call", "plan_exam"]

SENTENCE_GAP_FRAMES = 3
"""Silence between the sentences of one reply."""
ANSWER_S = (0.28, 0.5)
CUT_S = (0.30, 0.42)
STILL_THERE_S = (7.0, 7.6)
PACE = (0.88, 1.12)
"""A caller is played slower or faster, his pitch and formants with it: so he is many voices."""
_MAIN_VOICE, _CHAT_SHARE, _SHORT_SHARE = 0.65, 0.25, 0.5
_AGENT_FIRST, _BARGE_IN, _MURMUR, _QUIET, _UNKNOWN = 0.7, 0.16, 0.16, 0.14, 0.05
_BYE, _MOST_QUESTIONS = 0.12, 8
_SERVICE_ONLY = {"company", "open", "close", "hours", "day", "price", "where", "deliver", "park"}


class _Call:
    """One call while it is planned; times are seconds from its start."""

    def __init__(
        self,
        r: np.random.Generator,
        plans: Planner,
        frames: int,
        voice: int,
        caller: int,
        pace: float = 1.0,
    ) -> None:
        self.r, self.plans, self.bank, self.frames = r, plans, plans.bank, frames
        self.voice, self.caller, self.pace = voice, caller, pace
        self.length_s = frames / FRAMES_A_SECOND
        self.agent: list[Placement] = []
        self.spoken: list[tuple[int, int]] = []
        self.questions: list[Question] = []
        self.quiet_from_s = 0.0

    def between(self, span: tuple[float, float]) -> float:
        """Draw a time from a span."""
        return float(self.r.uniform(*span))

    def agent_says(self, reply: Reply, at_s: float) -> tuple[float, float]:
        """Place a reply; give when its speech begins and ends."""
        frame = math.ceil(at_s * FRAMES_A_SECOND)
        start_s = frame / FRAMES_A_SECOND
        end_s = start_s
        for key in reply.keys:
            utterance = self.bank.find(self.voice, key)
            end = frame + int(self.bank.frames[utterance])
            if frame >= self.frames:
                break
            others = self.plans.of_form(self.voice, key)
            other = others[self.r.integers(len(others))]
            self.agent.append(Placement(utterance, other, frame, min(end, self.frames)))
            end_s = frame / FRAMES_A_SECOND + float(self.bank.speech_s[utterance, 1])
            frame = end + SENTENCE_GAP_FRAMES
        self.quiet_from_s = max(self.quiet_from_s, end_s)
        return start_s, end_s

    def cut_agent(self, at_s: float) -> None:
        """Let the agent stop at a time, and say nothing of what would come after."""
        cut = math.ceil(at_s * FRAMES_A_SECOND)
        self.agent = [
            replace(p, end_frame=min(p.end_frame, cut)) for p in self.agent if p.frame < cut
        ]

    def caller_says(self, utterance: int, onset_s: float) -> float:
        """Let the caller's speech begin at a time; give when it ends."""
        begins, ends = self.bank.speech_s[utterance] / self.pace
        sample = max(0, int((onset_s - float(begins)) * SAMPLE_RATE_HZ))
        self.spoken.append((utterance, sample))
        end_s = sample / SAMPLE_RATE_HZ + float(ends)
        self.quiet_from_s = max(self.quiet_from_s, end_s)
        return end_s

    def ask(self, ask: Ask, reply: Reply, onset_s: float) -> float:
        """Let the caller ask; give when his question ends."""
        end_s = self.caller_says(ask.utterance, onset_s)
        self.questions.append(Question(ask.kind, onset_s, end_s, reply.facts, reply.is_copied))
        return end_s

    def takes_s(self, ask: Ask) -> float:
        """How long a question takes."""
        begins, ends = self.bank.speech_s[ask.utterance] / self.pace
        return float(ends - begins)

    def still_there(self) -> None:
        """Ask once, when the caller has been silent for long and the call lasts long enough."""
        at_s = self.quiet_from_s + self.between(STILL_THERE_S)
        if at_s + 1.4 < self.length_s:
            self.agent_says(Reply(("still#0",)), at_s)

    def finish(self, persona: Persona) -> CallPlan:
        """Write the rows."""
        plans, frames = self.plans, self.frames
        agent: list[tuple[int, float, int]] = []
        for p in self.agent:
            is_cut = p.end_frame < p.frame + int(self.bank.frames[p.utterance])
            agent.append((p.utterance, float(p.frame), p.end_frame if is_cut else frames))
        text, fact = plans.row(agent, frames, is_heard=False)
        spoken: list[tuple[int, float, int]] = []
        for utterance, sample in sorted(self.spoken, key=lambda said: said[1]):
            begin = sample / FRAME_SAMPLES
            length = math.ceil(self.bank.frames[utterance] / self.pace)
            spoken.append((utterance, begin, int(begin) + length))
        heard, _ = plans.row(spoken, frames, is_heard=True, pace=self.pace)
        prompts = plans.prompts(self.voice)
        return CallPlan(
            persona=persona.text,
            voice=self.voice,
            prompt=prompts[self.r.integers(len(prompts))],
            frames=frames,
            agent=self.agent,
            caller=self.spoken,
            text=text,
            heard=heard,
            fact=fact,
            questions=self.questions,
            speaker=self.caller,
            pace=self.pace,
        )


def plan_call(
    r: np.random.Generator,
    bank: Bank,
    tokens: SentencePieceProcessor,
    frames: int,
    *,
    held: bool = False,
    caller: int | None = None,
) -> CallPlan:
    """Plan a new call.

    Args:
        r: Its choices.
        bank: Utterances.
        tokens: The vocabulary.
        frames: Length of the call.
        held: Words and callers kept out of training instead of those of training.
        caller: Speaker that calls; drawn if None.
    """
    plans = planner(bank, tokens)
    voice = _draw_voice(r, plans)
    if caller is None:
        callers = plans.callers(held)
        caller = callers[r.integers(len(callers))]
    call = _Call(r, plans, frames, voice, caller, pace=float(r.uniform(*PACE)))
    asks = plans.asks(caller, held)
    kind = CHAT if r.random() < _CHAT_SHARE else SERVICE
    wanted, persona = _draw_questions(r, plans, voice, held, kind, asks)
    murmurs = [ask.utterance for ask in asks if ask.kind == "bc"]
    byes = [ask for ask in asks if ask.kind == "bye"]
    hellos = [ask for ask in asks if ask.kind == "hello"]
    if not hellos or r.random() < _AGENT_FIRST:
        spoke = call.agent_says(greeting(r, persona), float(r.uniform(0.45, 0.75)))
    elif r.random() < 0.6:
        hello = hellos[r.integers(len(hellos))]
        end_s = call.ask(hello, Reply(()), float(r.uniform(0.1, 0.6)))
        spoke = call.agent_says(greeting(r, persona), end_s + call.between(ANSWER_S))
    else:
        spoke = (0.0, -1.0)
    is_over = _converse(call, persona, wanted, murmurs, byes, spoke)
    if not is_over:
        call.still_there()
    return call.finish(persona)


def _draw_voice(r: np.random.Generator, plans: Planner) -> int:
    is_main = len(plans.agents) == 1 or r.random() < _MAIN_VOICE
    return plans.agents[0] if is_main else plans.agents[r.integers(1, len(plans.agents))]


def _draw_questions(
    r: np.random.Generator, plans: Planner, voice: int, held: bool, kind: str, asks: list[Ask]
) -> tuple[list[Ask], Persona]:
    """Choose what is asked and make a persona that knows most of it.

    Half of the personas are short: they know one to three facts.
    """
    is_short = r.random() < _SHORT_SHARE
    count = int(r.integers(1, 4)) if is_short else int(r.integers(4, 9))
    values = plans.pools(voice, held)
    topics: list[str] = []
    unknown: set[str] = set()
    wanted: list[Ask] = []
    for index in r.permutation(len(asks)).tolist():
        ask = asks[index]
        if ask.kind in ("bc", "bye", "hello") or len(wanted) == _MOST_QUESTIONS:
            continue
        if kind == CHAT and ask.kind in _SERVICE_ONLY:
            continue
        topic = topic_of(ask.kind, ask.value)
        if topic is not None and topic not in topics:
            if topic in unknown or topic.partition("/")[0] not in TOPICS[kind]:
                continue
            if ask.kind == "price" and ask.value not in values.prices:
                continue
            is_new = len(topics) < count and may_join(topics, topic)
            if is_new and r.random() > _UNKNOWN:
                topics.append(topic)
            elif r.random() < _UNKNOWN and may_join(topics, topic):
                unknown.add(topic)
            else:
                continue
        wanted.append(ask)
    return wanted, draw_persona(r, values, kind, topics, count, unknown)


def _converse(
    call: _Call,
    persona: Persona,
    wanted: list[Ask],
    murmurs: list[int],
    byes: list[Ask],
    spoke: tuple[float, float],
) -> bool:
    """Let the caller ask until the time is over; True once he has said goodbye."""
    r = call.r
    quiet_after = int(r.integers(0, 4)) if r.random() < _QUIET else len(wanted)
    may_interrupt = spoke[1] > 0
    for number, ask in enumerate(wanted):
        if number == quiet_after and spoke[1] > 0:
            return False
        began_s, ended_s = spoke
        interrupts = (
            may_interrupt and ask.is_plain and ended_s - began_s > 1.5 and r.random() < _BARGE_IN
        )
        if interrupts:
            onset_s = float(r.uniform(began_s + 0.5, ended_s - 0.6))
        else:
            if murmurs and ended_s - began_s > 1.8 and r.random() < _MURMUR:
                murmur = murmurs[r.integers(len(murmurs))]
                call.caller_says(murmur, float(r.uniform(began_s + 0.5, ended_s - 0.8)))
            wait = (0.25, 1.6) if r.random() < 0.75 else (1.6, 4.5)
            onset_s = call.quiet_from_s + call.between(wait)
            if ended_s < 0:
                onset_s = float(r.uniform(0.1, 0.6))
        if byes and number > 1 and r.random() < _BYE:
            ask = byes[0]
        if onset_s + call.takes_s(ask) + 2.2 > call.length_s:
            return False
        if interrupts:
            call.cut_agent(onset_s + call.between(CUT_S))
            call.quiet_from_s = onset_s
        reply = reply_to(r, persona, ask.kind, ask.value)
        end_s = call.ask(ask, reply, onset_s)
        spoke = call.agent_says(reply, end_s + call.between(ANSWER_S))
        may_interrupt = ask.kind != "bye"
        if ask.kind == "bye":
            return True
    return False


def plan_exam(
    r: np.random.Generator,
    bank: Bank,
    tokens: SentencePieceProcessor,
    frames: int,
    *,
    held: bool,
    caller: int,
    gap_s: float = 6.5,
    first_s: float = 5.0,
) -> CallPlan:
    """Plan a caller who asks for a fact every ``gap_s`` seconds, whatever he hears.

    The agent's side is empty: a model speaks there. ``held`` is about words and names alone; the
    caller may be any speaker of the bank that knows such words.
    """
    plans = planner(bank, tokens)
    voice = plans.agents[0]
    call = _Call(r, plans, frames, voice, caller)
    asks = plans.asks(caller, held)
    kind = CHAT if r.random() < _CHAT_SHARE else SERVICE
    wanted, persona = _draw_questions(r, plans, voice, held, kind, asks)
    onset_s = first_s
    for ask in wanted:
        reply = reply_to(r, persona, ask.kind, ask.value)
        if reply.facts and onset_s + call.takes_s(ask) + gap_s / 2 < call.length_s:
            call.ask(ask, reply, onset_s)
            onset_s += gap_s
    return call.finish(persona)
