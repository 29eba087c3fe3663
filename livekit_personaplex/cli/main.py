"""``livekit-personaplex``: the command line. A command's module is imported when it is wanted."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.version import __version__

PROGRAM = "livekit-personaplex"
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandModule(Protocol):
    """What the module of a command has."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, one line of help, and the module that has the rest."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("serve", "run an engine that calls connect to", "livekit_personaplex.cli.serve"),
    Command("offline", "talk to the model with a recording", "livekit_personaplex.cli.offline"),
    Command("bench", "measure an engine", "livekit_personaplex.cli.bench"),
    Command("doctor", "say what is missing on this machine", "livekit_personaplex.cli.doctor"),
    Command("download-files", "fetch the model's files", "livekit_personaplex.cli.download_files"),
    Command("demo", "hold one call on this machine", "livekit_personaplex.cli.demo"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code.

    What a person can put right is told in one line on standard error, with exit code 2.

    Args:
        argv: Arguments without the program's name; those of the process by default.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    parser, commands = _make_parser()
    for command, subparser in commands:
        if command.name in given[:1]:
            module = cast(CommandModule, importlib.import_module(command.module))
            module.add_arguments(subparser)
            return _run(module, parser.parse_args(given))
    parser.parse_args(given or ["--help"])
    return EXIT_USAGE


def _make_parser() -> tuple[argparse.ArgumentParser, list[tuple[Command, argparse.ArgumentParser]]]:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [-h] [--version] COMMAND ...",
        description="NVIDIA PersonaPlex, a full-duplex speech model, in LiveKit calls.",
        epilog=f"{PROGRAM} COMMAND --help says more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    width = max(len(command.name) for command in COMMANDS) + 2
    subparsers = parser.add_subparsers(
        prog=PROGRAM,
        title="commands",
        description="\n".join(f"{command.name:<{width}}{command.help}" for command in COMMANDS),
        help=argparse.SUPPRESS,
        metavar="COMMAND",
        required=True,
    )
    return parser, [(command, subparsers.add_parser(command.name)) for command in COMMANDS]


def _run(module: CommandModule, arguments: argparse.Namespace) -> int:
    try:
        return module.run(arguments)
    except PersonaPlexError as error:
        sys.stderr.write(f"{PROGRAM}: error: {error}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
