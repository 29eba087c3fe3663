"""``livekit-personaplex offline --input``: one recording."""

import argparse
import secrets
from pathlib import Path

from tqdm import tqdm

from livekit_personaplex.audio import float_to_pcm16, split_frames
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.engine.offline import converse
from livekit_personaplex.engine.voice_file import prepare_prompt
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.audio_file import read_recording
from livekit_personaplex.offline.captions import write_webvtt
from livekit_personaplex.offline.results import (
    describe,
    write_audio,
    write_codes,
    write_description,
    write_text,
)
from livekit_personaplex.offline.talk_stage import MAX_INPUT_S
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.settings import EngineSettings


def run_one(arguments: argparse.Namespace) -> int:
    """Hold one conversation and write what was asked for."""
    _check(arguments)
    seed = secrets.randbelow(MAX_SEED) if arguments.seed is None else arguments.seed
    sampling = Sampling(greedy=arguments.greedy, seed=seed)
    name = str(arguments.input)
    samples = float_to_pcm16(read_recording(arguments.input, name=name, max_s=MAX_INPUT_S))
    settings = EngineSettings.from_env(
        model=arguments.model, device=arguments.device, dtype=arguments.dtype, slots=1
    )
    core = EngineCore.load(settings)
    plan = prepare_prompt(core, arguments.voice, arguments.persona)
    frames = split_frames(samples)
    with tqdm(total=len(frames), unit=" frames", desc="conversation") as progress:
        said = converse(core, plan, sampling, frames, on_frame=progress.update)
    if arguments.output is not None:
        agent = said.pcm[: len(samples)]
        write_audio(arguments.output, agent, samples, layout=arguments.layout)
    if arguments.text is not None:
        about = describe(said, voice=arguments.voice, persona=arguments.persona, sampling=sampling)
        write_description(arguments.text, about)
    if arguments.captions is not None:
        write_text(arguments.captions, write_webvtt(said.timed_texts()))
    if arguments.tokens is not None:
        write_codes(arguments.tokens, said.tokens, {"num_samples": str(len(samples))})
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Find out now rather than after the conversation what is missing or cannot be kept."""
    if arguments.voice is None:
        raise ConfigError("expected --voice: a name, or a .wav or .pt file")
    outputs = [arguments.output, arguments.text, arguments.captions, arguments.tokens]
    wanted: list[Path] = [path for path in outputs if path is not None]
    if not wanted:
        raise ConfigError(
            "nothing to write: give one of --output, --text, --captions and --tokens, or all"
        )
    for path in wanted:
        if not path.parent.is_dir():
            raise ConfigError(f"expected a folder at {path.parent} to write {path.name} into")
        if path.is_dir():
            raise ConfigError(f"expected a file to write, {path} is a folder")
    used = [path.resolve() for path in (arguments.input, *wanted)]
    if len(set(used)) < len(used):
        raise ConfigError("expected a file of its own for the recording and for each output")
