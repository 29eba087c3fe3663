"""The demo from beginning to end: start everything, hold one call, show it, stop everything."""

import asyncio
import secrets
import tempfile
import time
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from safetensors.numpy import load_file

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.call import CallOutcome, Question, ask
from livekit_personaplex.demo.display import Display
from livekit_personaplex.demo.latency import CallAudio, measure_delays_s
from livekit_personaplex.demo.livekit_server import LiveKitCredentials, LocalLiveKitServer
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.demo.programs import start_engine, start_worker, wait_until_registered
from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.engine_process import READY_PREFIX

_PROGRESS_S = 10.0
_RECORDING_TIMEOUT_S = 10.0
_MAX_SPREAD_S = 0.3
_REGISTER_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoStack:
    """What runs after the call, for a person to use.

    Attributes:
        livekit: The LiveKit server.
        engine: The engine.
        programs: Everything that must run for a call.
    """

    livekit: LiveKitCredentials
    engine: EngineEndpoint
    programs: tuple[LoggedProcess, ...]

    @property
    def is_up(self) -> bool:
        """Whether all of it runs."""
        return all(program.returncode is None for program in self.programs)


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoPlan:
    """What to show.

    Attributes:
        livekit_server: The program.
        agent: The agent's file.
        settings: Environment of worker and engine: model, device, dtype.
        dispatch: Voice, persona, seed and the like of the call.
        question: What the caller asks.
        answer_s: Longest time to listen to the answer.
        output: Folder for the answer.
        start_timeout_s: How long the model may take to load, a download included.
        places_call: Whether to place the call with the question.
        stay: Called last, with everything up, for a person to join; None ends after the call.
    """

    livekit_server: Path
    agent: Path
    settings: dict[str, str]
    dispatch: dict[str, object]
    question: Question
    answer_s: float
    output: Path
    start_timeout_s: float
    places_call: bool = True
    stay: Callable[[DemoStack], None] | None = None


def demonstrate(plan: DemoPlan, display: Display) -> None:
    """Run the demo; blocks until it is over, with ``stay`` until that returns.

    Raises:
        PersonaPlexError: A program did not start, ended, or no agent came; with its last lines.
    """
    with (
        tempfile.TemporaryDirectory(prefix="personaplex-demo-") as folder,
        LocalLiveKitServer(plan.livekit_server) as server,
    ):
        display.note(f"livekit-server is up on {server.credentials.url}")
        records = Path(folder) / "records"
        address = EngineAddress.parse(f"unix:{folder}/engine.sock")
        settings = {**plan.settings, "PERSONAPLEX_RECORD": str(records)}
        with start_engine(["--listen", str(address)], **settings) as engine:
            _wait_until_ready(engine, plan, display)
            settings = {**plan.settings, "PERSONAPLEX_ENGINE": str(address)}
            with start_worker(plan.agent, server.credentials, settings=settings) as worker:
                wait_until_registered(worker, timeout_s=_REGISTER_TIMEOUT_S)
                display.note("the worker takes calls")
                if plan.places_call:
                    _place_call(server.credentials, records, plan, display)
                if plan.stay is not None:
                    stack = DemoStack(
                        livekit=server.credentials,
                        engine=EngineEndpoint(address=address),
                        programs=(server.process, engine, worker),
                    )
                    plan.stay(stack)
                    _tell_what_ended(stack)


def _wait_until_ready(engine: LoggedProcess, plan: DemoPlan, display: Display) -> None:
    begin_s = time.monotonic()
    display.note("starting the engine")
    while True:
        waited_s = time.monotonic() - begin_s
        left_s = plan.start_timeout_s - waited_s
        try:
            engine.wait_for(f"{READY_PREFIX}unix:", timeout_s=min(_PROGRESS_S, left_s))
        except PersonaPlexError:
            if engine.returncode is not None or left_s <= _PROGRESS_S:
                raise
            display.note(f"  still loading after {time.monotonic() - begin_s:.0f} s")
        else:
            display.note(f"the engine is ready after {time.monotonic() - begin_s:.1f} s")
            return


def _place_call(
    server: LiveKitCredentials, records: Path, plan: DemoPlan, display: Display
) -> None:
    room = f"demo-{secrets.token_hex(3)}"
    display.note(f"calling the agent in room {room}")
    outcome = asyncio.run(
        ask(
            server,
            room=room,
            dispatch=plan.dispatch,
            question=plan.question,
            answer_s=plan.answer_s,
            display=display,
        )
    )
    _tell_latency(outcome, plan.question, records, display)
    _keep_answer(outcome, plan.output, display)


def _tell_latency(
    outcome: CallOutcome, question: Question, records: Path, display: Display
) -> None:
    display.note(f"the agent was there {outcome.answered_s:.2f} s after the caller had joined")
    deadline_s = time.monotonic() + _RECORDING_TIMEOUT_S
    while not (found := list(records.glob("*.safetensors"))):
        if time.monotonic() > deadline_s:
            display.note("the engine left no recording of the call, so its latency is not known")
            return
        time.sleep(0.1)
    recorded = load_file(found[0])
    call = CallAudio(user=recorded["frames"].reshape(-1), agent=recorded["pcm"].reshape(-1))
    delays_s = measure_delays_s(question.samples, outcome.sent, outcome.heard, call)
    if not delays_s:
        display.note("the agent said nothing around the question, so there is no latency to tell")
        return
    display.note(
        f"latency: {median(delays_s) * 1000:.0f} ms from a sample of the caller to the first one "
        f"of the agent that can depend on it\n"
        f"  (median of {len(delays_s)} places, {min(delays_s) * 1000:.0f} to "
        f"{max(delays_s) * 1000:.0f} ms; microphone, Opus and jitter buffers both ways, the "
        "model's 80 ms frame and its step included)"
    )
    if max(delays_s) - min(delays_s) > _MAX_SPREAD_S:
        display.note("the agent fell behind: this machine is too slow or too busy for real time")


def _keep_answer(outcome: CallOutcome, output: Path, display: Display) -> None:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "answer.wav"
    samples = outcome.heard.samples.astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())
    loud = int(np.count_nonzero(np.abs(samples) > 200))
    silent = "" if loud else " (silence: the agent said nothing)"
    display.note(f"what the caller heard: {path}, {len(samples) / SAMPLE_RATE_HZ:.1f} s{silent}")


def _tell_what_ended(stack: DemoStack) -> None:
    for program in stack.programs:
        if program.returncode is not None:
            raise PersonaPlexError(f"{program.name} has ended; its last lines:\n{program.tail()}")
