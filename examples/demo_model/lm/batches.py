"""From call plans to training columns, on the device: every call is put together anew.

A caller's line is made for each call and encoded as a stream of its own, as in the product.

No two utterances have the same codes, so the first codes of one give away how it ends: a model that
hears them learns every sentence by heart and looks nothing up. In most calls the agent therefore
has the sound of *another* sentence of the same form, and only there the text of facts is judged;
in the rest it has its own, and only there codes are.

Legend: B calls, T columns, L live frames.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from examples.demo_model.device_copy import to_device
from examples.demo_model.lm.agents import SILENCE_COLUMN, AgentCodes, Encode, Utterances
from examples.demo_model.lm.columns import AGENT, NUM_ROWS, USER, delay_frames, prompt_length
from examples.demo_model.lm.losses import FACT, LIVE, MUTE, PROMPT, READ, Batch
from examples.demo_model.lm.plans import PlanLike
from examples.demo_model.lm.scramble import Scrambler
from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.model.prompt import (
    PAD_TOKEN,
    SILENCE_CODES,
    SILENCE_FRAMES,
    SINE_CODES,
    tag_persona,
)

Line = Callable[[torch.Tensor, torch.Generator, torch.Tensor | None], torch.Tensor]
"""A caller's line: track ``[B, N]``, generator and the agent's track to the track that arrives."""
_OWN_EVERY = 3
"""One call in so many has the agent's own sound."""
_SCRAMBLED_EVERY = 4


@dataclass(frozen=True, slots=True)
class Assembler:
    """Puts calls together.

    Attributes:
        sounds: The bank.
        agents: Its agents' codes.
        encode: The codec.
        line: What happens to a caller's voice on its way.
        tokenize: Text to ids.
        text_card: Text vocabulary.
        length: T of the batches.
        scrambler: Makes facts that nobody has.
        at_once: Calls encoded in one go.
    """

    sounds: Utterances
    agents: AgentCodes
    encode: Encode
    line: Line
    tokenize: Callable[[str], list[int]]
    text_card: int
    length: int
    scrambler: Scrambler | None = None
    at_once: int = 32

    def fits(self, plan: PlanLike, persona: Sequence[int]) -> bool:
        """Whether a call is short enough for a batch."""
        voice = self.agents.frames[plan.prompt]
        return prompt_length(voice, len(persona)) + plan.frames <= self.length

    @torch.no_grad()
    def assemble(
        self,
        plans: Sequence[PlanLike],
        generator: torch.Generator,
        *,
        silent_share: float = 0.0,
        scramble: np.random.Generator | None = None,
        is_own: bool | None = None,
    ) -> Batch:
        """Make columns of calls; those that are too long are left out.

        Args:
            plans: Calls of one length.
            generator: Of the device, for the lines.
            silent_share: Calls in which the caller's words stand in the text row instead of being
                heard: the persona must be read all the same, and reading is learnt early so.
            scramble: Draws what facts become in every fourth silent call; None: in no call.
            is_own: Whether the agent has its own sound; None: in every third call.
        """
        personas = [self.tokenize(tag_persona(plan.persona)) for plan in plans]
        kept = [
            (plan, persona)
            for plan, persona in zip(plans, personas, strict=True)
            if self.fits(plan, persona)
        ]
        rows = _Rows.create(len(kept), self.length)
        spoken = []
        for index, (plan, persona) in enumerate(kept):
            own = index % _OWN_EVERY == _OWN_EVERY - 1 if is_own is None else is_own
            self._write(rows, index, plan, persona)
            if index >= silent_share * len(kept) or (plan.heard < 0).any():
                spoken.append(index)
            else:
                self._read(rows, index, plan)
                if scramble is not None and index % _SCRAMBLED_EVERY == _SCRAMBLED_EVERY - 1:
                    self._scramble(rows, index, plan, scramble)
                    continue
            self._write_agent(rows, index, plan, is_own=own)
        return self._columns(rows, [plan for plan, _ in kept], spoken, generator)

    def _write(self, rows: "_Rows", index: int, plan: PlanLike, persona: list[int]) -> None:
        """Lay out prompt and text of one call on the host."""
        voice = self.agents.frames[plan.prompt]
        first = prompt_length(voice, len(persona))
        live = slice(first, first + plan.frames)
        begin = voice + SILENCE_FRAMES
        rows.text[index, begin : begin + len(persona)] = persona
        rows.source[index, :voice] = np.arange(voice) + self.agents.start[plan.prompt]
        rows.first[index], rows.text[index, live] = first, plan.text
        rows.heard[index, live] = plan.heard
        rows.role[index, live] = np.where(plan.fact & (plan.text > PAD_TOKEN), FACT, LIVE)

    def _write_agent(self, rows: "_Rows", index: int, plan: PlanLike, *, is_own: bool) -> None:
        """Lay out what the agent says, and what of it is judged."""
        first = int(rows.first[index])
        for placed in plan.agent:
            sound = placed.utterance if is_own else placed.other
            natural = placed.frame + int(self.sounds.frames[placed.utterance])
            cut = placed.end_frame if placed.end_frame < natural else plan.frames
            end = min(placed.frame + self.agents.frames[sound], cut, plan.frames)
            codes = np.arange(end - placed.frame) + self.agents.start[sound]
            rows.source[index, first + placed.frame : first + end] = codes
        rows.is_own[index] = is_own
        role = rows.role[index]
        if is_own:
            role[role == FACT] = READ
        else:
            role[first : first + plan.frames] += MUTE

    def _read(self, rows: "_Rows", index: int, plan: PlanLike) -> None:
        """Write the caller's words into the text row, where the agent has none."""
        first = int(rows.first[index])
        live = slice(first, first + plan.frames)
        is_read = (plan.text == PAD_TOKEN) & (plan.heard > PAD_TOKEN)
        rows.text[index, live] = np.where(is_read, plan.heard, plan.text)
        rows.role[index, live] = np.where(is_read, READ, rows.role[index, live])
        rows.heard[index, live] = -1

    def _scramble(
        self, rows: "_Rows", index: int, plan: PlanLike, draw: np.random.Generator
    ) -> None:
        """Let pieces of facts stand for others; what nobody has said has no sound."""
        assert self.scrambler is not None, "a scrambler is needed"
        text, role = rows.text[index], rows.role[index]
        table = self.scrambler.draw(text[role == FACT].tolist(), draw)
        rows.text[index] = table[text]
        first = int(rows.first[index])
        role[first : first + plan.frames] += MUTE

    def _columns(
        self,
        rows: "_Rows",
        plans: list[PlanLike],
        spoken: list[int],
        generator: torch.Generator,
    ) -> Batch:
        device = self.sounds.audio.device
        text, source, heard, role, first = (
            to_device(row, device)
            for row in (rows.text, rows.source, rows.heard, rows.role, rows.first)
        )
        frames = torch.empty(len(plans), NUM_ROWS, self.length, dtype=torch.int16, device=device)
        frames[:, 0] = text
        frames[:, AGENT] = self.agents.codes[:, source].transpose(0, 1)
        sine = to_device(np.array(SINE_CODES, np.int16), device)
        silence = to_device(np.array(SILENCE_CODES, np.int16), device)
        steps = torch.arange(self.length, device=device)
        is_live = (steps >= first.unsqueeze(1)).unsqueeze(1)
        user = torch.where(is_live, silence[None, :, None], sine[None, :, None])
        for group in range(0, len(spoken), self.at_once):
            of_group = spoken[group : group + self.at_once]
            members = to_device(np.array(of_group), device)
            calls = [(plans[index], bool(rows.is_own[index])) for index in of_group]
            codes = self._hear(calls, generator)
            at = (steps - first[members].unsqueeze(1)).clamp(0, codes.shape[2] - 1)
            placed = codes.gather(2, at.unsqueeze(1).expand(-1, codes.shape[1], -1))
            user[members] = torch.where(is_live[members], placed, user[members])
        frames[:, USER] = user
        return Batch(delay_frames(frames, self.text_card), heard, role)

    def _hear(self, calls: list[tuple[PlanLike, bool]], generator: torch.Generator) -> torch.Tensor:
        """Make the callers' tracks and encode them: ``[B, 8, L] int16``.

        Args:
            calls: Plans, and whether the agent has its own sound, which the line may echo.
            generator: Of the device.
        """
        device = self.sounds.audio.device
        length = calls[0][0].frames * FRAME_SAMPLES
        track = torch.zeros(len(calls), length, device=device)
        leak = torch.zeros(len(calls), length, device=device)
        for row, (plan, is_own) in enumerate(calls):
            assert plan.frames * FRAME_SAMPLES == length, "the calls differ in length"
            for utterance, sample in plan.caller:
                _add(track[row], _played(self.sounds.samples(utterance), plan.pace), sample)
            for placed in plan.agent:
                sound = placed.utterance if is_own else placed.other
                count = min(int(self.sounds.frames[sound]), placed.end_frame - placed.frame)
                samples = self.sounds.samples(sound, count)
                _add(leak[row], samples, placed.frame * FRAME_SAMPLES)
        heard = self.line(track, generator, leak).clamp(-1.0, 1.0)
        return self.encode(heard.unsqueeze(1)).short()


@dataclass(frozen=True, slots=True)
class _Rows:
    """One batch on the host, all ``[B, T]`` but ``first`` and ``is_own`` ``[B]``."""

    text: NDArray[np.int16]
    source: NDArray[np.int64]
    heard: NDArray[np.int16]
    role: NDArray[np.int8]
    first: NDArray[np.int64]
    is_own: NDArray[np.bool_]

    @staticmethod
    def create(calls: int, length: int) -> "_Rows":
        shape = (calls, length)
        return _Rows(
            text=np.full(shape, PAD_TOKEN, np.int16),
            source=np.full(shape, SILENCE_COLUMN, np.int64),
            heard=np.full(shape, -1, np.int16),
            role=np.full(shape, PROMPT, np.int8),
            first=np.zeros(calls, np.int64),
            is_own=np.zeros(calls, np.bool_),
        )


def _played(samples: torch.Tensor, pace: float) -> torch.Tensor:
    """``[n]`` to ``[n / pace]``."""
    if pace == 1.0:
        return samples
    count = int(len(samples) / pace)
    return F.interpolate(samples.view(1, 1, -1), size=count, mode="linear").view(-1)


def _add(track: torch.Tensor, samples: torch.Tensor, at: int) -> None:
    count = min(len(samples), len(track) - at)
    if count > 0:
        track[at : at + count] += samples[:count]
