"""What the wire and the engine's own bookkeeping cost, beside a core that costs nothing.

An engine process on a fake core, and this process with N sessions that talk at the pace of speech:
one user frame every 80 ms each, phases spread evenly. Measured from `send_frame` to the return of
`receive` with the frame that heard it: two trips over a Unix socket, four thread or task switches,
packing, one tick. CPU is what either process used per frame.

    python tests/benchmarks/wire_overhead.py
    python tests/benchmarks/wire_overhead.py --sessions 1 32 128 --seconds 20

Bound: a tick of the real model takes tens of milliseconds; 2 ms at p99 would not be seen beside it.
The last line is one JSON document.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from livekit_personaplex.audio import FRAME_S
from livekit_personaplex.cli.serve import announce
from livekit_personaplex.engine.process import run_engine
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats
from livekit_personaplex.wire.protocol import OpenRequest
from tests.fakes import FakeCore, user_frames

CLOCK_TICKS_PER_S = 100


async def talk(session: EngineSession, start_s: float, num_frames: int) -> list[float]:
    """Send a frame every 80 ms from `start_s` on; gives the round trips in seconds."""
    loop = asyncio.get_running_loop()
    frames, sent_s, round_trips_s = user_frames(8), [0.0] * num_frames, []

    async def send() -> None:
        for number in range(num_frames):
            await asyncio.sleep(start_s + number * FRAME_S - loop.time())
            sent_s[number] = time.perf_counter()
            session.send_frame(frames[number % 8])

    sending = asyncio.create_task(send())
    for _ in range(num_frames + 1):
        frame = await session.receive()
        if frame.heard is not None:
            round_trips_s.append(time.perf_counter() - sent_s[frame.heard])
    await sending
    return round_trips_s


async def measure(address: EngineAddress, pid: int, num_sessions: int, seconds: float) -> dict:
    """Hold `num_sessions` conversations at once."""
    request = OpenRequest(voice="ANN", persona="", sampling=Sampling(seed=1))
    sessions = [await EngineSession.open(address, request) for _ in range(num_sessions)]
    num_frames = round(seconds / FRAME_S)
    begin_s = asyncio.get_running_loop().time() + 0.1
    cpu_s = process_cpu_s(pid), time.process_time()
    talks = [
        talk(session, begin_s + index * FRAME_S / num_sessions, num_frames)
        for index, session in enumerate(sessions)
    ]
    round_trips_ms = np.concatenate(await asyncio.gather(*talks)) * 1e3
    total = num_sessions * num_frames
    figures = {
        "sessions": num_sessions,
        "p50_ms": round(float(np.quantile(round_trips_ms, 0.5)), 3),
        "p99_ms": round(float(np.quantile(round_trips_ms, 0.99)), 3),
        "max_ms": round(float(round_trips_ms.max()), 3),
        "engine_cpu_us_per_frame": round((process_cpu_s(pid) - cpu_s[0]) / total * 1e6),
        "client_cpu_us_per_frame": round((time.process_time() - cpu_s[1]) / total * 1e6),
        "dropped": (await fetch_stats(address)).dropped_frames,
    }
    await asyncio.gather(*(session.aclose() for session in sessions))
    return figures


def process_cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def serve(address: str, num_slots: int) -> int:
    settings = EngineSettings(device="cpu", listen=EngineAddress.parse(address))
    core = FakeCore(num_slots=num_slots)
    return run_engine(settings, lambda: core, announce=announce, exit_with_parent=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--serve", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    num_slots = max(arguments.sessions)
    if arguments.serve:
        sys.exit(serve(arguments.serve, num_slots))
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/engine.sock"
        command = [sys.executable, __file__, "--serve", address, "--sessions", str(num_slots)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
            assert engine.stdout is not None
            engine.stdout.readline()
            where = EngineAddress.parse(address)
            results = [
                asyncio.run(measure(where, engine.pid, sessions, arguments.seconds))
                for sessions in arguments.sessions
            ]
            for result in results:
                print("  ".join(f"{name} {value}" for name, value in result.items()))
            print(json.dumps(results))


if __name__ == "__main__":
    main()
