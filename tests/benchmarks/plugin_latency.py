"""What the plugin costs in a job process, beside an engine that costs nothing.

Sessions get 20 ms of audio every 20 ms, as from a room; a scripted engine in a process of its own
answers at once. Latency: from the last sample of a frame pushed to the agent's next frame received,
so two trips over a Unix socket and everything the plugin does in between. CPU: of this process,
less what the loop that makes the audio takes with no session.

    python tests/benchmarks/plugin_latency.py
    python tests/benchmarks/plugin_latency.py --sessions 1 10 --seconds 20
    python tests/benchmarks/plugin_latency.py --captions --sessions 1 --seconds 40

With --captions the audio is a recorded question again and again, with a pause of a second, and each
row is measured without and with the recogniser of callers' words.

A job process holds one session. Bound: 5 ms at p99 beside an idle machine.
The last line is one JSON document.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from livekit import rtc
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from livekit_personaplex import LocalSTT, PersonaPlexModel, PersonaPlexSession
from tests.fake_engine import FakeEngine, silence, words
from tests.rooms.speech import read_question

PIECE_S = 0.02
PIECE_SAMPLES = 480
NOISE = (np.random.default_rng(0).standard_normal(PIECE_SAMPLES) * 1_000).astype(np.int16)
PAUSE = np.zeros(24_000, dtype=np.int16)

Samples = NDArray[np.int16]


def serve(folder: str, is_ready: Event) -> None:
    """Be the engine, until killed."""
    script = (words("one two three four five six seven eight nine ten") + silence(25)) * 40

    async def run() -> None:
        async with FakeEngine(Path(folder), slots=64, script=script):
            is_ready.set()
            await asyncio.Event().wait()

    asyncio.run(run())


async def drain(session: PersonaPlexSession) -> None:
    """Play the agent's audio to nobody."""
    async for _ in session.audio_stream:
        pass


def children_cpu_s() -> float:
    """Of the processes that have ended: the recognisers, their start included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def measure(
    address: str, num_sessions: int, seconds: float, samples: Samples, *, captions: bool
) -> dict[str, Any]:
    """Talk on some sessions at once and give what it took."""
    recognizer = LocalSTT() if captions else None
    model = PersonaPlexModel(engine=address, voice="NATF2", user_stt=recognizer)
    model.arm()
    sessions = [model.session() for _ in range(num_sessions)]
    for session in sessions:
        await session._update_session(instructions="", tools=[])
    readers = [asyncio.create_task(drain(session)) for session in sessions]
    before_cpu_s = children_cpu_s()
    cpu_s, began_s = time.process_time(), time.perf_counter()
    pieces = np.resize(samples, (round(seconds / PIECE_S), PIECE_SAMPLES))
    for piece, content in enumerate(pieces, start=1):
        await asyncio.sleep(max(0.0, began_s + piece * PIECE_S - time.perf_counter()))
        for session in sessions:
            session.push_audio(rtc.AudioFrame(content.tobytes(), 24_000, 1, PIECE_SAMPLES))
    cpu_s = time.process_time() - cpu_s
    stats = [session.stats for session in sessions]
    await model.aclose()
    await asyncio.gather(*readers)
    return {
        "sessions": num_sessions,
        "captions": captions,
        "latency_p50_ms": round(max((s.latency_p50_ms for s in stats), default=0.0), 2),
        "latency_p99_ms": round(max((s.latency_p99_ms for s in stats), default=0.0), 2),
        "silence_frames": sum(s.silence_frames for s in stats),
        "dropped_ms": sum(s.dropped_ms for s in stats),
        "cpu_percent": round(cpu_s / seconds * 100, 2),
        "recognizers_cpu_percent": round((children_cpu_s() - before_cpu_s) / seconds * 100, 2),
    }


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--captions", action="store_true")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        is_ready = spawn.Event()
        engine = spawn.Process(target=serve, args=(folder, is_ready), daemon=True)
        engine.start()
        is_ready.wait()
        results = []
        samples = np.concatenate((read_question("opening_hours"), PAUSE))
        for num_sessions in [0, *arguments.sessions]:
            for captions in (False, True) if arguments.captions and num_sessions else (False,):
                result = asyncio.run(
                    measure(
                        f"unix:{folder}/engine.sock",
                        num_sessions,
                        arguments.seconds,
                        samples if arguments.captions else NOISE,
                        captions=captions,
                    )
                )
                print(result)
                results.append(result)
        engine.terminate()
        engine.join()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
