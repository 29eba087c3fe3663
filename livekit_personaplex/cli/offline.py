"""``livekit-personaplex offline``: what agents say to recordings, without a clock."""

import argparse
from pathlib import Path

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.offline.outputs import STAGES
from livekit_personaplex.offline.results import LAYOUTS
from livekit_personaplex.settings import DTYPES

DESCRIPTION = """\
Hold conversations with recordings as the caller: the same steps as in a call, without a clock.
WAV, FLAC, OGG (Vorbis and Opus) and MP3 are read, at any rate.

Alignment: the output has as many samples as the input at 24 kHz, and frame n of it (80 ms, 1,920
samples) is the model's frame n: decided from the input's frames 0 to n-1, so that in a call it is
ready to be heard when frame n of the input begins. The last input frame is heard by nobody.

One recording: --input, and what to write of it.

Many recordings: --inputs, a folder, a .txt with a path on each line, or a .jsonl with an object on
each line: input, and if wanted name, voice, persona, seed, greedy, text_temperature, text_top_k,
audio_temperature, audio_top_k. They run side by side in --slots as one batch, as many as fit a GPU,
one on a CPU unless told otherwise (there, four take a third of the time). Tokens are those of one
recording at a time with the same seed; only where two tokens are equally likely to the last bit
may another size of the batch decide otherwise. Outputs are NAME.wav (agent), NAME.json (its words
with their times) and what is asked for; what is there already is skipped, so that the same command
takes up a run that was ended. What became of each is in report.jsonl; the exit code is 1 when one
failed.

Stages: "talker" gives codes (NAME.safetensors) and words, "code2wav" makes audio of a folder or
list of such files, later or elsewhere; it needs only the codec of the model.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--model", metavar="DIR", help="model folder, or hub id (default: PERSONAPLEX_MODEL)")
    add("--voice", metavar="NAME|FILE", help="of the model, or a .wav or .pt")
    add("--persona", metavar="TEXT", default="", help="who the agent is (default: nobody)")
    add("--greedy", action="store_true", help="take the likeliest token always")
    add("--seed", metavar="N", type=int, help="one seed, one conversation (default: random)")
    add("--device", metavar="DEVICE", help="cuda, cuda:N for one of several GPUs, or cpu")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on cuda, float32 on cpu")
    add(
        "--layout",
        choices=LAYOUTS,
        default="mono",
        help="of the audio: the agent alone, or a stereo file with the caller on the other side",
    )
    one = parser.add_argument_group("one recording").add_argument
    one("--input", metavar="FILE", type=Path, help="the caller")
    one("--output", metavar="WAV", type=Path, help="the agent, 24 kHz 16 bit")
    one("--text", metavar="JSON", type=Path, help="the agent's words with their times")
    one("--captions", metavar="VTT", type=Path, help="the agent's words as WebVTT captions")
    one("--tokens", metavar="FILE", type=Path, help="safetensors: tokens int64 [9, frames]")
    many = parser.add_argument_group("many recordings").add_argument
    many("--inputs", metavar="PATH", type=Path, help="folder, .txt or .jsonl")
    many("--output-dir", metavar="DIR", type=Path, help="where outputs go; made if missing")
    many("--stage", choices=STAGES, default="both", help="default: both")
    many("--slots", metavar="N", type=int, help="conversations at a time")
    many("--with-captions", action="store_true", help="also NAME.vtt, WebVTT captions")
    many("--with-codes", action="store_true", help="also NAME.safetensors, the codes")
    many("--report", metavar="JSONL", type=Path, help="default: report.jsonl in the output folder")


def run(arguments: argparse.Namespace) -> int:
    """Hold one conversation or many; gives the exit code."""
    if (arguments.input is None) == (arguments.inputs is None):
        raise ConfigError("expected --input for one recording or --inputs for many, and not both")
    if arguments.inputs is None:
        from livekit_personaplex.cli.offline_one import run_one  # brings torch: not for --help

        return run_one(arguments)
    from livekit_personaplex.cli.offline_many import run_many

    return run_many(arguments)
