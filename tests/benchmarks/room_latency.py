"""The latency of a call in a real room, beside what the room alone costs.

What is measured: from a sample that leaves the caller's microphone to the agent's sample that can
first depend on it, as the caller hears it. It holds, in this order: capture, Opus, the server and a
jitter buffer on the way in; the rest of the model's 80 ms frame; one engine tick; the plugin's head
start of 40 ms; Opus, the server and a jitter buffer on the way out.
The floor, in the same run: the same caller and a participant that copies every 10 ms back.
How to read it: the goal is floor + 80 ms frame + 40 ms head start + one tick + 10 ms. It can be
less: the agent's first frame needs no user audio, so a tick hides in the head start, and the
caller's audio may run ahead of the model's beat by up to 40 ms.

    make bench
    python -m tests.benchmarks.room_latency --calls 3
    python -m tests.benchmarks.room_latency --model DIR --device cuda

Both are found by correlation of what the caller said, sent and heard with what the engine recorded.
The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.caller import Caller
from livekit_personaplex.demo.latency import measure_delays_s
from livekit_personaplex.demo.livekit_server import (
    LiveKitCredentials,
    LocalLiveKitServer,
    find_livekit_server,
)
from tests.rooms.echo import EchoParticipant
from tests.rooms.replay import RecordedCall
from tests.rooms.speech import read_question
from tests.rooms.worker import AGENT, PROJECT, TINY16, RoomWorker, run_worker

QUESTION = read_question("opening_hours")
SETTLE_S = 3.0
"""Jitter buffers find their length in the first seconds of a call."""
DISPATCH = {"greedy": True}


@dataclass(frozen=True)
class Figures:
    """One call."""

    delays_s: list[float]
    plugin_p50_ms: float
    plugin_p99_ms: float
    tick_p50_ms: float
    open_ms: float
    agent_there_s: float
    job_private_mb: float


async def measure_floor(livekit: LiveKitCredentials, repeats: int) -> list[float]:
    echo = await EchoParticipant.join(livekit, room="floor")
    caller = await Caller.join(livekit, room="floor")
    delays_s = []
    try:
        microphone = await caller.publish()
        await asyncio.sleep(SETTLE_S)
        for _ in range(repeats):
            begin = len(microphone.sent.samples)
            microphone.say(QUESTION)
            await microphone.said()
            await asyncio.sleep(1.0)
            sent_at = begin + find(QUESTION, microphone.sent.samples[begin:]).sample
            spoken_s = microphone.sent.start_s(sent_at)
            near = caller.heard.between(spoken_s, spoken_s + 6.0)
            delays_s.append(near.start_s(find(QUESTION, near.samples).sample) - spoken_s)
    finally:
        await caller.leave()
        await echo.leave()
    return delays_s


async def measure_call(livekit: LiveKitCredentials, worker: RoomWorker, name: str) -> Figures:
    known = worker.recordings()
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    caller = await Caller.join(livekit, room=name, dispatch=DISPATCH, departure_timeout_s=1)
    try:
        microphone = await caller.publish()
        await caller.until(lambda: bool(caller.heard.pieces), what="the agent", timeout_s=30.0)
        agent_there_s = loop.time() - begin_s
        await asyncio.sleep(SETTLE_S)
        microphone.say(QUESTION)
        await microphone.said()
        await asyncio.sleep(2.0)
        tick_p50_ms = (await worker.stats()).tick_p50_ms
        private_mb = job_private_mb(worker)
        sent, heard = microphone.sent, caller.heard
    finally:
        await caller.leave()
    call = RecordedCall.read(await worker.next_recording(known))
    return Figures(
        delays_s=measure_delays_s(QUESTION, sent, heard, call.audio, margin_s=1.0),
        plugin_p50_ms=float(logged(worker, "conversation ended", r'"latency_p50_ms": ([\d.]+)')),
        plugin_p99_ms=float(logged(worker, "conversation ended", r'"latency_p99_ms": ([\d.]+)')),
        tick_p50_ms=tick_p50_ms,
        open_ms=open_ms(worker),
        agent_there_s=agent_there_s,
        job_private_mb=private_mb,
    )


def logged(worker: RoomWorker, event: str, pattern: str) -> str:
    """The latest value of a pattern's group in a line about an event."""
    lines = [line for line in worker.process.lines if event in line]
    found = re.search(pattern, lines[-1])
    assert found is not None, lines[-1]
    return found.group(1)


def logged_time(worker: RoomWorker, event: str) -> datetime:
    return datetime.strptime(logged(worker, event, r"^([\d-]+ [\d:,]+) "), "%Y-%m-%d %H:%M:%S,%f")


def open_ms(worker: RoomWorker) -> float:
    """From LiveKit's request to a session whose system prompt is done."""
    begun = logged_time(worker, "received job request")
    return (logged_time(worker, "conversation opened") - begun).total_seconds() * 1000


def job_private_mb(worker: RoomWorker) -> float:
    """Memory that only the process of the latest call holds."""
    pid = int(logged(worker, "conversation opened", r'"pid": (\d+)'))
    return float(psutil.Process(pid).memory_full_info().uss) / 1e6


def summarize(delays_s: Sequence[float]) -> dict[str, float]:
    ordered = np.sort(np.asarray(delays_s)) * 1000
    return {
        "p50_ms": round(float(np.percentile(ordered, 50)), 1),
        "p99_ms": round(float(np.percentile(ordered, 99)), 1),
        "min_ms": round(float(ordered[0]), 1),
        "max_ms": round(float(ordered[-1]), 1),
        "count": len(ordered),
    }


def report(model: str, floor_s: list[float], calls: list[Figures]) -> None:
    floor = summarize(floor_s)
    agent = summarize([delay_s for call in calls for delay_s in call.delays_s])
    tick_ms = median(call.tick_p50_ms for call in calls)
    goal_ms = floor["p50_ms"] + 80 + 40 + tick_ms + 10
    figures = {
        "floor": floor,
        "agent": agent,
        "tick_p50_ms": tick_ms,
        "goal_ms": round(goal_ms, 1),
        "plugin_p50_ms": round(median(call.plugin_p50_ms for call in calls), 1),
        "plugin_p99_ms": round(max(call.plugin_p99_ms for call in calls), 1),
        "open_ms": round(median(call.open_ms for call in calls), 1),
        "agent_there_s": round(median(call.agent_there_s for call in calls), 2),
        "job_private_mb": round(max(call.job_private_mb for call in calls), 1),
    }
    print(f"{model} on {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    rows = [
        ("echo participant: the floor", f"{floor['p50_ms']:.1f} ms"),
        ("agent", f"{agent['p50_ms']:.1f} ms ({agent['min_ms']:.1f} to {agent['max_ms']:.1f})"),
        (f"goal, with a tick of {tick_ms:.1f} ms", f"{goal_ms:.1f} ms"),
        ("frame pushed to frame emitted, p50", f"{figures['plugin_p50_ms']:.1f} ms"),
        ("frame pushed to frame emitted, p99", f"{figures['plugin_p99_ms']:.1f} ms"),
        ("job request to model ready", f"{figures['open_ms']:.0f} ms"),
        ("caller joins to agent heard", f"{figures['agent_there_s']:.2f} s"),
        ("private memory of a job process", f"{figures['job_private_mb']:.1f} MB"),
    ]
    for what, value in rows:
        print(f"{what:<40} {value}")
    print(json.dumps({"model": model, "cores": os.cpu_count(), **figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(TINY16))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--calls", type=int, default=3)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalLiveKitServer(find_livekit_server(PROJECT)) as server,
    ):
        floor_s = asyncio.run(measure_floor(server.credentials, repeats=4))
        settings = {"PERSONAPLEX_MODEL": arguments.model, "PERSONAPLEX_DEVICE": arguments.device}
        if arguments.device == "cuda":
            settings["PERSONAPLEX_DTYPE"] = "bfloat16"
        with run_worker(
            server.credentials, Path(folder) / "worker", slots=2, agent=AGENT, settings=settings
        ) as worker:
            calls = [
                asyncio.run(measure_call(server.credentials, worker, f"call-{number}"))
                for number in range(arguments.calls)
            ]
    report(arguments.model, floor_s, calls)


if __name__ == "__main__":
    main()
