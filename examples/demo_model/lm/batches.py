"""From call plans to training columns, on the device: every call is put together anew.

An agent's utterance has the same codes wherever it is said, so it is encoded once, after silence;
a caller's line is made for each call and encoded as a stream of its own, as in the product.

Legend: B calls, T columns, L live frames, K code columns of all agent utterances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from examples.demo_model.device_copy import to_device
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

Encode = Callable[[torch.Tensor], torch.Tensor]
"""Codec: ``[B, 1, n * 1920] float32`` to ``[B, 8, n]`` codes."""
Line = Callable[[torch.Tensor, torch.Generator, torch.Tensor | None], torch.Tensor]
"""A caller's line: track ``[B, N]``, generator and the agent's track to the track that arrives."""
TAIL_FRAMES = 4
_SCRAMBLED_EVERY = 4
_SILENCE = 0
"""Code column that holds the silence."""


@dataclass(frozen=True, slots=True)
class Utterances:
    """The bank's sound on the device.

    Attributes:
        audio: ``[samples] int16``.
        start: First sample of each utterance.
        frames: Length of each in frames.
    """

    audio: torch.Tensor
    start: NDArray[np.int64]
    frames: NDArray[np.int32]

    def samples(self, utterance: int, num_frames: int | None = None) -> torch.Tensor:
        """``[n * 1920] float32`` of an utterance, or of its first frames."""
        count = int(self.frames[utterance]) if num_frames is None else num_frames
        first = int(self.start[utterance])
        return self.audio[first : first + count * FRAME_SAMPLES].float() / 32768.0


@dataclass(frozen=True, slots=True)
class AgentCodes:
    """Codes of all that agents say; the first column is the silence.

    Attributes:
        codes: ``[8, K] int16`` on the device.
        start: Utterance to its first column.
        frames: Utterance to its number of columns, the tail of silence included.
    """

    codes: torch.Tensor
    start: dict[int, int]
    frames: dict[int, int]


@torch.no_grad()
def encode_agents(
    sounds: Utterances,
    spoken: Sequence[int],
    prompts: dict[int, torch.Tensor],
    encode: Encode,
    *,
    lead_frames: int,
    at_once: int = 64,
) -> AgentCodes:
    """Encode every agent utterance once.

    Args:
        sounds: The bank.
        spoken: Utterances, encoded after ``lead_frames`` of silence and with a tail of silence.
        prompts: Voice prompts by utterance, ``[n * 1920] float32`` as loud as the product makes
            them; encoded from the start of a stream.
        encode: The codec.
        lead_frames: More than the codec's window.
        at_once: Utterances of one batch.
    """
    device = sounds.audio.device
    columns = [torch.tensor(SILENCE_CODES, device=device).unsqueeze(1).short()]
    start, frames, total = {}, {}, 1
    for utterance, samples in prompts.items():
        columns.append(encode(samples.view(1, 1, -1))[0].short())
        start[utterance], frames[utterance] = total, columns[-1].shape[1]
        total += frames[utterance]
    ordered = sorted(spoken, key=lambda utterance: int(sounds.frames[utterance]))
    for first in range(0, len(ordered), at_once):
        group = ordered[first : first + at_once]
        length = lead_frames + int(sounds.frames[group[-1]]) + TAIL_FRAMES
        track = torch.zeros(len(group), length * FRAME_SAMPLES, device=device)
        for row, utterance in enumerate(group):
            samples = sounds.samples(utterance)
            begin = lead_frames * FRAME_SAMPLES
            track[row, begin : begin + len(samples)] = samples
        codes = encode(track.unsqueeze(1)).short()
        for row, utterance in enumerate(group):
            count = int(sounds.frames[utterance]) + TAIL_FRAMES
            columns.append(codes[row, :, lead_frames : lead_frames + count])
            start[utterance], frames[utterance] = total, count
            total += count
    return AgentCodes(torch.cat(columns, 1), start, frames)


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
    ) -> Batch:
        """Make columns of calls; those that are too long are left out.

        Args:
            plans: Calls of one length.
            generator: Of the device, for the lines.
            silent_share: Calls in which the caller's words stand in the text row instead of being
                heard: the persona must be read all the same, and reading is learnt early so.
            scramble: Draws what facts become in every fourth silent call; None: in no call.
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
            if index >= silent_share * len(kept) or (plan.heard < 0).any():
                self._write(rows, index, plan, persona)
                self._write_agent(rows, index, plan)
                spoken.append(index)
            else:
                self._write(rows, index, plan, persona)
                is_scrambled = index % _SCRAMBLED_EVERY == _SCRAMBLED_EVERY - 1
                self._silence(rows, index, plan, scramble if is_scrambled else None)
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

    def _write_agent(self, rows: "_Rows", index: int, plan: PlanLike) -> None:
        """Lay out what the agent says."""
        first = int(rows.first[index])
        for placed in plan.agent:
            count = self.agents.frames[placed.utterance]
            natural = placed.frame + count - TAIL_FRAMES
            end = placed.frame + count if placed.end_frame >= natural else placed.end_frame
            end = min(end, plan.frames)
            codes = np.arange(end - placed.frame) + self.agents.start[placed.utterance]
            rows.source[index, first + placed.frame : first + end] = codes

    def _silence(
        self, rows: "_Rows", index: int, plan: PlanLike, scramble: np.random.Generator | None
    ) -> None:
        """Write the caller's words into the text row, where the agent has none."""
        first = int(rows.first[index])
        live = slice(first, first + plan.frames)
        is_read = (plan.text == PAD_TOKEN) & (plan.heard > PAD_TOKEN)
        rows.text[index, live] = np.where(is_read, plan.heard, plan.text)
        rows.role[index, live] = np.where(is_read, READ, rows.role[index, live])
        rows.heard[index, live] = -1
        if scramble is None or self.scrambler is None:
            self._write_agent(rows, index, plan)
            return
        text, role = rows.text[index], rows.role[index]
        table = self.scrambler.draw(text[role == FACT].tolist(), scramble)
        rows.text[index] = table[text]
        rows.role[index, live] += MUTE

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
            heard_calls = [plans[index] for index in spoken[group : group + self.at_once]]
            members = to_device(np.array(spoken[group : group + self.at_once]), device)
            codes = self._hear(heard_calls, generator)
            at = (steps - first[members].unsqueeze(1)).clamp(0, codes.shape[2] - 1)
            placed = codes.gather(2, at.unsqueeze(1).expand(-1, codes.shape[1], -1))
            user[members] = torch.where(is_live[members], placed, user[members])
        frames[:, USER] = user
        return Batch(delay_frames(frames, self.text_card), heard, role)

    def _hear(self, plans: list[PlanLike], generator: torch.Generator) -> torch.Tensor:
        """Make the callers' tracks and encode them: ``[B, 8, L] int16``."""
        device = self.sounds.audio.device
        length = plans[0].frames * FRAME_SAMPLES
        track = torch.zeros(len(plans), length, device=device)
        leak = torch.zeros(len(plans), length, device=device)
        for row, plan in enumerate(plans):
            assert plan.frames * FRAME_SAMPLES == length, "the calls differ in length"
            for utterance, sample in plan.caller:
                _add(track[row], self.sounds.samples(utterance), sample)
            for placed in plan.agent:
                natural = int(self.sounds.frames[placed.utterance])
                count = min(natural, placed.end_frame - placed.frame)
                samples = self.sounds.samples(placed.utterance, count)
                _add(leak[row], samples, placed.frame * FRAME_SAMPLES)
        heard = self.line(track, generator, leak).clamp(-1.0, 1.0)
        return self.encode(heard.unsqueeze(1)).short()


@dataclass(frozen=True, slots=True)
class _Rows:
    """One batch on the host, all ``[B, T]`` but ``first`` ``[B]``."""

    text: NDArray[np.int16]
    source: NDArray[np.int64]
    heard: NDArray[np.int16]
    role: NDArray[np.int8]
    first: NDArray[np.int64]

    @staticmethod
    def create(calls: int, length: int) -> "_Rows":
        shape = (calls, length)
        return _Rows(
            text=np.full(shape, PAD_TOKEN, np.int16),
            source=np.full(shape, _SILENCE, np.int64),
            heard=np.full(shape, -1, np.int16),
            role=np.full(shape, PROMPT, np.int8),
            first=np.zeros(calls, np.int64),
        )


def _add(track: torch.Tensor, samples: torch.Tensor, at: int) -> None:
    count = min(len(samples), len(track) - at)
    if count > 0:
        track[at : at + count] += samples[:count]
