"""``livekit-personaplex download-files``: fetch the model before an engine needs it."""

import argparse
import sys

from livekit_personaplex.settings import EngineSettings

DESCRIPTION = """\
Fetch the files of the model that PERSONAPLEX_MODEL names, NVIDIA's by default (17 GB), into the
cache of the Hugging Face hub (HF_HOME says where). What is there already is not fetched again.

NVIDIA's model is gated: accept its licence on https://huggingface.co/nvidia/personaplex-7b-v1 and
set HF_TOKEN to a token of that account. `python -m livekit.agents download-files` does the same.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", metavar="ID", help="hub id instead of PERSONAPLEX_MODEL")


def run(arguments: argparse.Namespace) -> int:
    """Fetch what is missing; blocks for long. Raises what `resolve_model` raises."""
    from livekit_personaplex.model.hub import resolve_model

    model = EngineSettings.from_env(model=arguments.model, device="cpu").model
    sys.stdout.write(f"{resolve_model(model)}\n")
    return 0
