"""``livekit-personaplex serve``: an engine process."""

import argparse
import sys
from pathlib import Path

from livekit_personaplex.cli.log_lines import log_to_stderr
from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.engine.process import run_engine
from livekit_personaplex.settings import DTYPES, KV_DTYPES, EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.engine_process import READY_PREFIX

DESCRIPTION = """\
Run an engine: one process that holds the model and serves every call that connects to it.
It writes "ready ADDRESS" to standard output once it takes calls, and logs to standard error.

What is not given as an option comes from the environment: PERSONAPLEX_MODEL, PERSONAPLEX_SLOTS,
PERSONAPLEX_DEVICE, PERSONAPLEX_DTYPE, PERSONAPLEX_KV, PERSONAPLEX_VOICES, PERSONAPLEX_RECORD. The
token that clients on TCP must know comes from PERSONAPLEX_TOKEN only, so that no list of processes
shows it.

GET /health on that address says whether it takes calls, /metrics shows its state to Prometheus,
/stats the same as JSON, /voices the names of the voices.

With --nvidia-protocol it also serves NVIDIA's own clients and LiveKit's livekit-plugins-nvidia, on
/api/chat: on a loopback address they need no token; elsewhere they give it as the password in the
address, ws://any:TOKEN@HOST:PORT. With --nvidia-client DIR its browser client is a page at that
address: of another machine open it through "ssh -L 8998:127.0.0.1:8998 HOST", since browsers give
their microphone only to localhost and https.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--model", metavar="DIR", help="model folder, or hub id")
    add(
        "--slots",
        metavar="N",
        type=int,
        help="conversations at a time; default: as many as fit a GPU, one on a CPU",
    )
    add(
        "--listen",
        metavar="ADDRESS",
        required=True,
        help="unix:PATH (for this user only) or HOST:PORT (for who knows the token)",
    )
    add("--device", metavar="DEVICE", help="cuda, cuda:N for one of several GPUs, or cpu")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on cuda, float32 on cpu")
    add("--kv", choices=KV_DTYPES, help="keys and values: fp8 fits twice as many conversations")
    add("--voices", metavar="DIR", type=Path, help="folder of your own voices, NAME.wav")
    add(
        "--record",
        metavar="DIR",
        type=Path,
        help="keep what every session heard and answered, for offline replay; contains speech",
    )
    add(
        "--max-backlog-frames",
        metavar="N",
        type=int,
        help="80 ms frames of a call that may wait; older ones are dropped",
    )
    add(
        "--tick-timeout-s",
        metavar="S",
        type=float,
        help="a tick that takes longer ends the engine",
    )
    add("--nvidia-protocol", action="store_true", help="also serve NVIDIA's clients, on /api/chat")
    add(
        "--nvidia-client",
        metavar="DIR",
        type=Path,
        help="also serve NVIDIA's browser client, client/dist of its repository, and its protocol",
    )
    add("--exit-with-parent", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop. Raises what `run_engine` raises."""
    log_to_stderr()
    settings = EngineSettings.from_env(
        model=arguments.model,
        slots=arguments.slots,
        listen=EngineAddress.parse(arguments.listen),
        device=arguments.device,
        dtype=arguments.dtype,
        kv=arguments.kv,
        voices_dir=arguments.voices,
        record_dir=arguments.record,
        max_backlog_frames=arguments.max_backlog_frames,
        tick_timeout_s=arguments.tick_timeout_s,
        nvidia_protocol=arguments.nvidia_protocol or arguments.nvidia_client is not None,
        nvidia_client_dir=arguments.nvidia_client,
    )

    def load() -> Core:
        from livekit_personaplex.engine.core import EngineCore  # brings torch: not for --help

        return EngineCore.load(settings)

    return run_engine(
        settings, load, announce=announce, exit_with_parent=arguments.exit_with_parent
    )


def announce(address: EngineAddress) -> None:
    """Say on standard output that calls may come."""
    sys.stdout.write(f"{READY_PREFIX}{address}\n")
    sys.stdout.flush()
