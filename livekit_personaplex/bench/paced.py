"""Many callers on a running engine, in real time: what they see from their side of the wire.

Every caller sends a frame each 80 ms, at its own phase and with jitter, and hears agent frames.
An agent frame that takes longer than 80 ms after the user frame it waits for is a missed deadline.
Callers come and go all the time. Needs the wire only: no torch, no GPU on this side.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES
from livekit_personaplex.bench.figures import percentiles_ms
from livekit_personaplex.errors import CapacityError, EngineError, PersonaPlexError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats, fetch_voices
from livekit_personaplex.wire.protocol import OpenRequest

_NUM_FRAMES = 64
_WINDOW_FRAMES = 3000


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedLoad:
    """What callers do.

    Attributes:
        address: Of the engine.
        token: For an engine on TCP.
        callers: How many talk at a time.
        duration_s: For how long.
        mean_call_s: Callers leave after about this long and others come; None: they all stay.
        leaving: How many of them leave; the others stay to the end. None: all.
        jitter_ms: Frames are late by up to this much, evenly distributed.
        persona_words: Length of the personas.
    """

    address: EngineAddress
    token: str | None
    callers: int
    duration_s: float
    mean_call_s: float | None
    jitter_ms: float
    leaving: int | None = None
    persona_words: int = 60


@dataclass(slots=True)
class _Seen:
    began_s: float
    latencies_s: list[float] = field(default_factory=list)
    first_opens_s: list[float] = field(default_factory=list)
    later_opens_s: list[float] = field(default_factory=list)
    past_window: int = 0
    calls: int = 0
    refused: int = 0
    failed: int = 0
    lost_frames: int = 0
    late_sends: int = 0
    missed_at_s: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PacedFigures:
    """What all callers saw together.

    Attributes:
        callers: At a time.
        duration_s: For how long.
        calls: Calls that were opened.
        frames: Agent frames that came.
        past_window: Those of them whose call had filled the real model's window before.
        p50_ms: From a user frame sent to its agent frame received.
        p99_ms: Likewise.
        max_ms: Likewise.
        missed_deadlines: Agent frames that took longer than 80 ms.
        missed_at_s: Whole seconds since the start in which such frames came, each once: many
            missed in one second are one stall.
        lost_frames: Agent frames that never came within a second of the call's end.
        dropped_frames: User frames that the engine dropped.
        refused: Calls refused.
        failed: Calls that ended with an error.
        first_open_max_ms: From asking for a call until it was ready, of the first calls of all
            callers, who ask at nearly the same time.
        open_p50_ms: The same of later calls, which open beside the others.
        open_p99_ms: Likewise.
        open_max_ms: Likewise.
        late_sends: Frames that this client sent over 10 ms late: its own fault.
    """

    callers: int
    duration_s: float
    calls: int
    frames: int
    past_window: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    missed_deadlines: int
    missed_at_s: list[int]
    lost_frames: int
    dropped_frames: int
    refused: int
    failed: int
    first_open_max_ms: float
    open_p50_ms: float
    open_p99_ms: float
    open_max_ms: float
    late_sends: int

    def as_json(self) -> dict[str, float | int | list[int]]:
        """Give the figures as the results file keeps them."""
        return asdict(self)


async def measure_paced(load: PacedLoad) -> PacedFigures:
    """Run the load against a running engine.

    Raises:
        EngineError: The engine cannot be reached, or is still loading.
    """
    before = await fetch_stats(load.address, token=load.token)
    if not before.ready:
        raise EngineError(f"the engine at {load.address} is still loading; try again")
    voices = await fetch_voices(load.address, token=load.token)
    seen = _Seen(began_s=time.monotonic())
    ends_s = seen.began_s + load.duration_s
    await asyncio.gather(
        *(_keep_calling(load, number, voices, ends_s, seen) for number in range(load.callers))
    )
    after = await fetch_stats(load.address, token=load.token)
    p50_ms, p99_ms, max_ms = percentiles_ms(seen.latencies_s)
    open_p50_ms, open_p99_ms, open_max_ms = percentiles_ms(seen.later_opens_s or [0.0])
    return PacedFigures(
        callers=load.callers,
        duration_s=load.duration_s,
        calls=seen.calls,
        frames=len(seen.latencies_s),
        past_window=seen.past_window,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        max_ms=max_ms,
        missed_deadlines=sum(latency_s > FRAME_S for latency_s in seen.latencies_s),
        missed_at_s=sorted(seen.missed_at_s),
        lost_frames=seen.lost_frames,
        dropped_frames=after.dropped_frames - before.dropped_frames,
        refused=seen.refused,
        failed=seen.failed,
        first_open_max_ms=1e3 * max(seen.first_opens_s, default=0.0),
        open_p50_ms=open_p50_ms,
        open_p99_ms=open_p99_ms,
        open_max_ms=open_max_ms,
        late_sends=seen.late_sends,
    )


async def _keep_calling(
    load: PacedLoad, number: int, voices: Sequence[str], ends_s: float, seen: _Seen
) -> None:
    """One caller after another, until the end."""
    rng = random.Random(number)
    leaves = load.leaving is None or number < load.leaving
    opens_s = seen.first_opens_s
    await asyncio.sleep(rng.random() * 2 * FRAME_S + number * 0.02)
    while time.monotonic() < ends_s:
        call_s = ends_s - time.monotonic()
        if load.mean_call_s is not None and leaves:
            call_s = min(call_s, rng.expovariate(1 / load.mean_call_s) + 1.0)
        request = OpenRequest(
            voice=rng.choice(voices),
            persona=" ".join(["word"] * load.persona_words),
            sampling=Sampling(seed=rng.getrandbits(32)),
        )
        try:
            began_s = time.monotonic()
            session = await EngineSession.open(load.address, request, token=load.token)
            opens_s.append(time.monotonic() - began_s)
            opens_s = seen.later_opens_s
        except CapacityError:
            seen.refused += 1
            await asyncio.sleep(rng.random())
            continue
        seen.calls += 1
        try:
            await _talk(session, load, call_s, rng, seen)
        except PersonaPlexError:
            seen.failed += 1
        finally:
            await session.aclose()


async def _talk(
    session: EngineSession, load: PacedLoad, call_s: float, rng: random.Random, seen: _Seen
) -> None:
    num_frames = max(1, int(call_s / FRAME_S))
    sent_s: list[float] = []
    listener = asyncio.create_task(_listen(session, sent_s, num_frames, seen))
    noise = np.random.default_rng(rng.getrandbits(32))
    frames = noise.normal(0, 3000, (_NUM_FRAMES, FRAME_SAMPLES)).astype(np.int16)
    began_s = time.monotonic()
    for number in range(num_frames):
        due_s = began_s + (number + 1) * FRAME_S + rng.random() * load.jitter_ms / 1e3
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        seen.late_sends += time.monotonic() - due_s > 0.01
        sent_s.append(time.monotonic())
        session.send_frame(frames[number % _NUM_FRAMES].tobytes())
    try:
        await asyncio.wait_for(listener, timeout=1.0)
    except asyncio.TimeoutError:
        pass


async def _listen(
    session: EngineSession, sent_s: Sequence[float], num_frames: int, seen: _Seen
) -> None:
    """Time agent frames 1 to ``num_frames``; frame 0 waits for nobody."""
    heard = 0
    try:
        while heard < num_frames:
            frame = await session.receive()
            if frame.step > 0:
                heard += 1
                seen.past_window += frame.step > _WINDOW_FRAMES
                now_s = time.monotonic()
                latency_s = now_s - sent_s[frame.step - 1]
                seen.latencies_s.append(latency_s)
                if latency_s > FRAME_S:
                    seen.missed_at_s.add(int(now_s - seen.began_s))
    finally:
        seen.lost_frames += num_frames - heard
