"""``livekit-personaplex offline``: what the agent says to a recording, without a clock."""

import argparse
import json
import secrets
from pathlib import Path

import soundfile
from safetensors.numpy import save_file
from tqdm import tqdm

from livekit_personaplex.audio import SAMPLE_RATE_HZ, float_to_pcm16, split_frames
from livekit_personaplex.engine.offline import OfflineConversation, converse
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.audio_file import read_recording
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.settings import DTYPES, EngineSettings

DESCRIPTION = """\
Hold one conversation with a recording as the caller: the same steps as in a call, without a clock.

Alignment: the output has as many samples as the input at 24 kHz, and frame n of it (80 ms, 1,920
samples) is the model's frame n: decided from the input's frames 0 to n-1, so that in a call it is
ready to be heard when frame n of the input begins. The last input frame is heard by nobody.
"""

_MAX_INPUT_S = 4 * 3600.0
"""Longest recording taken: it is read whole."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--model", metavar="DIR", help="model folder, or hub id (default: PERSONAPLEX_MODEL)")
    add("--input", metavar="WAV", type=Path, required=True, help="the caller; any rate and width")
    add("--output", metavar="WAV", type=Path, help="the agent, 24 kHz mono 16 bit")
    add("--text", metavar="JSON", type=Path, help="the agent's words with their times")
    add("--tokens", metavar="FILE", type=Path, help="safetensors: tokens int64 [9, frames]")
    add("--voice", metavar="NAME|FILE", required=True, help="of the model, or a .wav or .pt")
    add("--persona", metavar="TEXT", default="", help="who the agent is (default: nobody)")
    add("--greedy", action="store_true", help="take the likeliest token always")
    add("--seed", metavar="N", type=int, help="one seed, one conversation (default: random)")
    add("--device", metavar="DEVICE", help="cuda, cuda:N for one of several GPUs, or cpu")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on cuda, float32 on cpu")


def run(arguments: argparse.Namespace) -> int:
    """Hold one conversation and write what was asked for."""
    from livekit_personaplex.engine.core import EngineCore  # brings torch: not for --help
    from livekit_personaplex.engine.voice_file import prepare_prompt

    _check_outputs(arguments)
    seed = secrets.randbelow(MAX_SEED) if arguments.seed is None else arguments.seed
    sampling = Sampling(greedy=arguments.greedy, seed=seed)
    name = str(arguments.input)
    samples = float_to_pcm16(read_recording(arguments.input, name=name, max_s=_MAX_INPUT_S))
    settings = EngineSettings.from_env(
        model=arguments.model, device=arguments.device, dtype=arguments.dtype, slots=1
    )
    core = EngineCore.load(settings)
    plan = prepare_prompt(core, arguments.voice, arguments.persona)
    frames = split_frames(samples)
    with tqdm(total=len(frames), unit=" frames", desc="conversation") as progress:
        said = converse(core, plan, sampling, frames, on_frame=progress.update)
    if arguments.output is not None:
        soundfile.write(
            arguments.output,
            said.pcm[: len(samples)],
            SAMPLE_RATE_HZ,
            subtype="PCM_16",
            format="WAV",
        )
    if arguments.text is not None:
        arguments.text.write_text(_describe(said, arguments, seed), encoding="utf-8")
    if arguments.tokens is not None:
        save_file({"tokens": said.tokens}, arguments.tokens)
    return 0


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Find out now rather than after the conversation that its results cannot be kept."""
    outputs = [arguments.output, arguments.text, arguments.tokens]
    wanted: list[Path] = [path for path in outputs if path is not None]
    if not wanted:
        raise ConfigError("nothing to write: give one of --output, --text and --tokens, or all")
    for path in wanted:
        if not path.parent.is_dir():
            raise ConfigError(f"expected a folder at {path.parent} to write {path.name} into")
        if path.is_dir():
            raise ConfigError(f"expected a file to write, {path} is a folder")


def _describe(said: OfflineConversation, arguments: argparse.Namespace, seed: int) -> str:
    pieces = [{"start_ms": start_ms, "text": text} for start_ms, text in said.timed_texts()]
    content = {
        "text": said.text,
        "pieces": pieces,
        "voice": arguments.voice,
        "persona": arguments.persona,
        "greedy": arguments.greedy,
        "seed": seed,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
