"""What a work folder holds, opened for the language model: bank, vocabulary, codec and plans."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece
import torch

from examples.demo_model.bank.bank import Bank
from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.lm.agents import AgentCodes, Utterances, encode_agents
from examples.demo_model.lm.batches import Assembler
from examples.demo_model.lm.plans import PlanLike, Planner
from examples.demo_model.lm.scramble import Scrambler
from examples.demo_model.sizes import SIZES, Sizes
from examples.demo_model.speech.voices import AGENT
from examples.demo_model.talk.calls import plan_call
from examples.demo_model.talk.line import degrade
from examples.demo_model.tokens import FILE as TOKENS_FILE
from livekit_personaplex.audio import FRAME_SAMPLES, pcm16_to_float
from livekit_personaplex.model.audio_file import VOICE_LOUDNESS_LUFS, set_loudness

PROMPT_KEY = "prompt/"
_CODES_FILE = "agent-codes.pt"
_LEAD_FRAMES = 8
"""Silence before an utterance, beyond the codec's window."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """Everything that calls are made of.

    Attributes:
        sizes: Of the model, with the vocabulary as it is.
        bank: Utterances.
        tokens: The vocabulary.
        codec: Frozen, on the device.
        assembler: Puts plans together.
    """

    sizes: Sizes
    bank: Bank
    tokens: sentencepiece.SentencePieceProcessor
    codec: Mimi
    assembler: Assembler


def open_tokens(work: Path) -> sentencepiece.SentencePieceProcessor:
    """Read the vocabulary."""
    return sentencepiece.SentencePieceProcessor(model_file=str(work / TOKENS_FILE))


def open_codec(work: Path, sizes: Sizes, device: torch.device) -> Mimi:
    """Read the codec and freeze it."""
    codec = Mimi.load(work / "codec" / FILE_NAME, sizes.mimi).to(device).eval()
    return codec.requires_grad_(False)


def open_workshop(work: Path, name: str, device: torch.device, *, length: int) -> Workshop:
    """Open a work folder; encodes what agents say, once for a bank and a codec.

    Args:
        work: The folder.
        name: Of the sizes.
        device: Where calls are put together.
        length: Columns of a call.
    """
    tokens = open_tokens(work)
    sizes = replace(SIZES[name], text_card=tokens.vocab_size())
    bank = Bank.open(work / "bank")
    codec = open_codec(work, sizes, device)
    audio = torch.empty(bank.num_samples, dtype=torch.int16, device=device)
    bank.copy_to(audio)
    sounds = Utterances(audio, bank.start, bank.frames)
    assembler = Assembler(
        sounds=sounds,
        agents=_agent_codes(work, sizes, bank, sounds, codec),
        encode=codec.encode,
        line=degrade,
        tokenize=tokens.encode,
        text_card=sizes.text_card,
        length=length,
        scrambler=Scrambler.of(tokens.id_to_piece, sizes.text_card),
    )
    return Workshop(sizes, bank, tokens, codec, assembler)


def make_planner(bank: Bank, tokens: sentencepiece.SentencePieceProcessor, frames: int) -> Planner:
    """Plan calls of one length from an open bank."""

    def plan(draw: np.random.Generator, held: bool) -> PlanLike:
        return plan_call(draw, bank, tokens, frames, held=held)

    return plan


def open_planner(work: Path, frames: int) -> Planner:
    """Open a bank for planning; in a worker process."""
    return make_planner(Bank.open(work / "bank"), open_tokens(work), frames)


def _agent_codes(
    work: Path, sizes: Sizes, bank: Bank, sounds: Utterances, codec: Mimi
) -> AgentCodes:
    """Encode all that agents say, or read it where this bank and codec were encoded before."""
    device = sounds.audio.device
    digest = hashlib.sha256((work / "codec" / FILE_NAME).read_bytes())
    digest.update(json.dumps([len(bank.keys), bank.num_samples]).encode())
    path = work / "lm" / _CODES_FILE
    if path.is_file():
        saved = torch.load(path, map_location=device, weights_only=True)
        if saved["digest"] == digest.hexdigest():
            return AgentCodes(saved["codes"], saved["start"], saved["frames"])
    agents = set(bank.speakers_of(AGENT))
    said = [i for i, speaker in enumerate(bank.speaker.tolist()) if speaker in agents]
    spoken = [i for i in said if not bank.keys[i].startswith(PROMPT_KEY)]
    prompts = {
        i: torch.from_numpy(voice_prompt(bank, i)).to(device)
        for i in said
        if bank.keys[i].startswith(PROMPT_KEY)
    }
    lead = sizes.mimi.context // 2 + _LEAD_FRAMES
    made = encode_agents(sounds, spoken, prompts, codec.encode, lead_frames=lead)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"digest": digest.hexdigest(), "codes": made.codes}
    torch.save({**kept, "start": made.start, "frames": made.frames}, path)
    return made


def voice_prompt(bank: Bank, utterance: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Give a voice prompt as the product hears it: whole frames at its loudness."""
    samples = set_loudness(
        pcm16_to_float(bank.audio_of(utterance)), VOICE_LOUDNESS_LUFS, name=bank.keys[utterance]
    )
    assert len(samples) % FRAME_SAMPLES == 0
    return samples
