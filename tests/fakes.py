"""A core without a model: what a session says is a function of what it alone was given."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, NUM_TOKEN_ROWS
from livekit_personaplex.engine.core_protocol import AgentStep, TickResult
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.stats import PersonaLength

VOICES = ("ANN", "BOB")
MAX_GIVEN = 20


@dataclass(frozen=True)
class FakePlan:
    """A prompt: its identity, and how many ticks it takes."""

    text: bytes
    num_ticks: int

    @property
    def num_positions(self) -> int:
        return 10 * self.num_ticks


@dataclass
class Conversation:
    """A session's whole history, folded into a digest; gives its next step."""

    digest: bytes
    ticks_to_open: int = 0
    num_steps: int = 0
    given: list[int] = field(default_factory=list)
    num_given: int = 0
    num_said: int = 0
    is_held: bool = False

    @classmethod
    def begin(cls, plan: FakePlan, sampling: Sampling) -> "Conversation":
        seed = str(sampling.seed).encode()
        return cls(hashlib.sha256(plan.text + seed).digest(), plan.num_ticks)

    def step(self, pcm: NDArray[np.int16] | None) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        heard = b"nothing" if pcm is None else pcm.tobytes()
        assert (pcm is None) == (self.num_steps == 0), "step 0, and only it, hears nothing"
        self.digest = hashlib.sha256(self.digest + heard).digest()
        self.num_steps += 1
        words = np.frombuffer(self.digest, dtype=np.int16)
        pcm_out = np.tile(words, FRAME_SAMPLES // len(words)).copy()
        tokens = words[:NUM_TOKEN_ROWS].astype(np.int64) % 2048
        if self.is_held:
            tokens[0] = 0
        elif self.given:  # a given word at every step
            tokens[0] = self.given.pop(0)
            self.num_said = self.num_given - len(self.given)
        return pcm_out, tokens


class FakeDecoder:
    """Every seventh token is silent, the others are words; one of them is not ASCII."""

    def push(self, token: int) -> str:
        return "" if token % 7 == 0 else " Zoë" if token % 7 == 1 else f" {token}"


@dataclass
class FakeCore:
    """Fulfils `Core`. The hooks run inside the call they are named after, in its thread."""

    num_slots: int = 2
    prompt_ticks: int = 1
    on_prepare: Callable[[], None] = lambda: None
    on_open: Callable[[int], None] = lambda slot: None
    on_tick: Callable[[int], None] = lambda tick: None
    num_ticks: int = 0
    batches: list[list[int]] = field(default_factory=list)
    opened_plans: list[FakePlan] = field(default_factory=list)
    conversations: dict[int, Conversation] = field(default_factory=dict)
    _caller: int | None = None

    @property
    def voices(self) -> tuple[str, ...]:
        return VOICES

    def prepare(self, voice: str, persona: str) -> FakePlan:
        self.on_prepare()
        if voice not in VOICES:
            raise ConfigError(f"unknown voice {voice!r}; known are {', '.join(VOICES)}")
        return FakePlan(f"{voice}/{persona}".encode(), self.prompt_ticks)

    def open(self, slot: int, plan: FakePlan, sampling: Sampling) -> None:
        self._check_thread()
        assert slot not in self.conversations, f"slot {slot} has an owner"
        assert sampling.seed is not None
        self.on_open(slot)
        self.opened_plans.append(plan)
        self.conversations[slot] = Conversation.begin(plan, sampling)

    def measure_persona(self, persona: str) -> PersonaLength:
        return PersonaLength(tokens=len(persona), max_tokens=2_000, window=3_000)

    def prepare_words(self, text: str) -> list[int]:
        if "unspeakable" in text:
            raise ConfigError("these words cannot be said")
        return [3000 + sum(word.encode()) % 1000 for word in text.split()] or [4000]

    def say(self, slot: int, words: list[int]) -> int:
        self._check_thread()
        conversation = self.conversations[slot]
        if len(conversation.given) + len(words) > MAX_GIVEN:
            raise ConfigError("too many words wait to be said")
        conversation.given += words
        conversation.num_given += len(words)
        return conversation.num_given

    def stop_saying(self, slot: int) -> None:
        self._check_thread()
        conversation = self.conversations[slot]
        conversation.given.clear()
        conversation.num_said = conversation.num_given

    def hold(self, slot: int) -> None:
        self._check_thread()
        self.conversations[slot].is_held = True

    def release(self, slot: int) -> None:
        self._check_thread()
        self.conversations[slot].is_held = False

    def close(self, slot: int) -> None:
        self._check_thread()
        self.conversations.pop(slot, None)

    def tick(self, frames: Mapping[int, NDArray[np.int16] | None]) -> TickResult:
        self._check_thread()
        self.on_tick(self.num_ticks)
        self.num_ticks += 1
        self.batches.append(sorted(frames))
        opened = []
        for slot, conversation in self.conversations.items():
            if conversation.ticks_to_open:
                assert slot not in frames, f"slot {slot} stepped before its prompt was done"
            if conversation.ticks_to_open and not frames:
                conversation.ticks_to_open -= 1
                if not conversation.ticks_to_open:
                    opened.append(slot)
        steps = []
        for slot in frames:
            pcm, tokens = self.conversations[slot].step(frames[slot])
            steps.append(AgentStep(slot, pcm, tokens, self.conversations[slot].num_said))
        return TickResult(steps, opened)

    def text_decoder(self) -> FakeDecoder:
        return FakeDecoder()

    def _check_thread(self) -> None:
        self._caller = self._caller or threading.get_ident()
        assert threading.get_ident() == self._caller, "two threads call the core"


@dataclass(frozen=True)
class Expected:
    """What a session should receive: PCM, tokens and text of every agent frame."""

    pcm: list[bytes]
    tokens: list[tuple[int, ...]]
    text: list[str]


def expected_talk(
    frames: list[bytes], *, voice: str = "ANN", persona: str = "", seed: int = 1
) -> Expected:
    """What `FakeCore` says to user frames, the first of which is heard by step 1."""
    conversation = Conversation.begin(
        FakePlan(f"{voice}/{persona}".encode(), 0), Sampling(seed=seed)
    )
    heard = [None, *(np.frombuffer(frame, dtype=np.int16) for frame in frames)]
    steps = [conversation.step(pcm) for pcm in heard]
    decoder = FakeDecoder()
    return Expected(
        pcm=[pcm.tobytes() for pcm, _ in steps],
        tokens=[tuple(tokens.tolist()) for _, tokens in steps],
        text=[decoder.push(int(tokens[0])) for _, tokens in steps],
    )


def user_frames(count: int, *, seed: int = 0) -> list[bytes]:
    """Distinct user frames, 3,840 bytes each."""
    random = np.random.default_rng(seed)
    pcm = random.integers(-3000, 3000, size=(count, FRAME_SAMPLES), dtype=np.int16)
    return [frame.tobytes() for frame in pcm]


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Wait for what another thread or process does; AssertionError when it does not."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.002)
