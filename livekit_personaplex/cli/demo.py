"""``livekit-personaplex demo``: one whole call on this machine, from server to caller."""

import argparse
import asyncio
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from livekit_personaplex.audio import float_to_pcm16
from livekit_personaplex.demo.call import Question
from livekit_personaplex.demo.demonstration import DemoPlan, DemoStack, demonstrate
from livekit_personaplex.demo.display import Display
from livekit_personaplex.demo.livekit_server import find_livekit_server
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.audio_file import read_recording
from livekit_personaplex.recognizer import find_model
from livekit_personaplex.settings import DEVICES, DTYPES
from livekit_personaplex.web.server import DEFAULT_PORT, PageSetup, check_library, serve_page

DESCRIPTION = """\
One call on this machine: starts a LiveKit server, an engine and the agent's worker on loopback,
joins as a caller, asks a recorded question, shows the words of both sides and the latency, and
keeps what the caller heard. With a person at the keyboard it then serves a page to talk on, to this
machine only, until Ctrl-C; --page does so at once, without the recorded call.

For the real model, on a machine with a GPU and with HF_TOKEN set to a token of an account that has
accepted its licence: --model nvidia/personaplex-7b-v1
"""

_PROJECT = Path(__file__).resolve().parents[2]
_SMALL_MODEL = _PROJECT / "tests" / "data" / "tiny16" / "checkpoint"
_QUESTION = _PROJECT / "tests" / "data" / "speech" / "opening_hours.wav"
_PERSONA = (
    "You work for Blue Heron Library which is a public library and your name is Zoe. "
    "Information: Open from 9 am to 5 pm. The late fee is 10 cents a day. Closed on Sunday."
)
_MAX_QUESTION_S = 60.0
_GPU = Path("/dev/nvidia0")
_CPU_START_TIMEOUT_S = 120.0
_GPU_START_TIMEOUT_S = 3600.0  # 17 GB may have to be downloaded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--model", metavar="DIR", help="model folder or hub id (default: a tiny random one)")
    add("--device", choices=DEVICES, help="default: cuda for --model where there is a GPU")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on cuda, float32 on cpu")
    add("--voice", metavar="NAME", help="voice of the agent (default: the model's first)")
    add("--persona", metavar="TEXT", default=_PERSONA, help="who the agent is")
    add("--seed", metavar="N", type=int, help="one seed, one conversation (default: random)")
    add(
        "--question",
        metavar="WAV",
        type=Path,
        default=_QUESTION,
        help="what to ask; its words are read from the .txt beside it",
    )
    add("--seconds", metavar="S", type=float, default=8.0, help="longest time to listen")
    add("--agent", metavar="PY", type=Path, default=_PROJECT / "agent.py", help="agent to run")
    add("--output", metavar="DIR", type=Path, default=Path("demo-output"), help="for the answer")
    add(
        "--captions",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the caller's words too, on the CPU (default: where the recogniser is installed)",
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--once", action="store_true", help="end after the call even with a person at the keyboard"
    )
    ends.add_argument(
        "--page", action="store_true", help="serve the page at once, whoever is at the keyboard"
    )
    add(
        "--port", metavar="N", type=int, help=f"of the page (default: {DEFAULT_PORT} if it is free)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Ctrl-C and SIGTERM end everything that it started."""
    logging.getLogger("livekit").setLevel(logging.CRITICAL)  # says in red what is no fault
    signal.signal(signal.SIGTERM, _interrupt)
    display = Display(_write)
    plan = _make_plan(arguments, display)
    display.note(f"model {plan.settings['PERSONAPLEX_MODEL']}")
    if arguments.model is None:
        display.note("  its weights are random, so its speech is noise and its words are jumbled;")
        display.note("  it shows that the call works. --model takes a trained one.")
    try:
        demonstrate(plan, display)
    except KeyboardInterrupt:
        display.note("\nended")
        if plan.stay is None:
            raise
    return 0


def _make_plan(arguments: argparse.Namespace, display: Display) -> DemoPlan:
    if not arguments.agent.is_file():
        raise ConfigError(f"expected an agent to run at {arguments.agent}; give one with --agent")
    model = arguments.model or str(_SMALL_MODEL)
    is_gpu = _GPU.exists() and arguments.model is not None
    device = arguments.device or ("cuda" if is_gpu else "cpu")
    has_captions, caller_words = _find_captions(arguments.captions)
    if not has_captions:
        display.note(caller_words)
    settings = {
        "PERSONAPLEX_CAPTIONS": "local" if has_captions else "",
        "PERSONAPLEX_MODEL": model,
        "PERSONAPLEX_DEVICE": device,
        "PERSONAPLEX_DTYPE": arguments.dtype or "",
        "PERSONAPLEX_SLOTS": "2",
        "PERSONAPLEX_ENGINE": "",
    }
    stays = _can_stay(arguments, display)
    wanted = {name: getattr(arguments, name) for name in ("voice", "persona", "seed")}
    return DemoPlan(
        livekit_server=find_livekit_server(_PROJECT),
        agent=arguments.agent,
        settings=settings,
        dispatch={name: value for name, value in wanted.items() if value is not None},
        question=_read_question(arguments.question),
        answer_s=arguments.seconds,
        output=arguments.output,
        start_timeout_s=_GPU_START_TIMEOUT_S if device == "cuda" else _CPU_START_TIMEOUT_S,
        places_call=not arguments.page,
        stay=partial(_serve_page, arguments, caller_words, display) if stays else None,
    )


def _find_captions(is_wanted: bool) -> tuple[bool, str]:
    """Whether the caller's words can be shown, and what to say about them."""
    if not is_wanted:
        return False, "Your words are not shown: --no-captions."
    try:
        find_model()
    except ConfigError as error:
        return False, f"Your words are not shown: {error}."
    return True, (
        "Your own words are the rough reading of a small recogniser on this machine. The model "
        "hears your voice itself, not these words."
    )


def _can_stay(arguments: argparse.Namespace, display: Display) -> bool:
    """Whether a page can be served to somebody who is there to use it."""
    if arguments.page:
        check_library()
        return True
    if arguments.once or not sys.stdin.isatty():
        return False
    try:
        check_library()
    except ConfigError as error:
        display.note(f"ending after the call: {error}")
        return False
    return True


def _serve_page(
    arguments: argparse.Namespace,
    caller_words: str,
    display: Display,
    stack: DemoStack,
) -> None:
    """Serve the page until one of the programs it stands on has ended."""
    setup = PageSetup(
        livekit=stack.livekit,
        engine=stack.engine,
        voice=arguments.voice,
        persona=arguments.persona,
        is_noise=arguments.model is None,
        caller_words=caller_words,
    )

    def tell(url: str) -> None:
        display.note(
            f"\nNow you: open {url}\n(with headphones; for this machine only). Ctrl-C ends "
            "everything."
        )

    asyncio.run(serve_page(setup, port=arguments.port, tell=tell, is_up=lambda: stack.is_up))


def _read_question(path: Path) -> Question:
    samples = read_recording(path, name=str(path), max_s=_MAX_QUESTION_S)
    words = path.with_suffix(".txt")
    return Question(
        samples=float_to_pcm16(samples),
        words=words.read_text(encoding="utf-8").strip() if words.is_file() else f"({path.name})",
    )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
