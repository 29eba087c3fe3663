"""Clients of NVIDIA's protocol that know nothing of us, against a real engine on tiny weights."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import pytest
import soundfile
from livekit import rtc
from livekit.agents import llm
from livekit.plugins.nvidia.experimental.realtime import RealtimeModel
from safetensors import safe_open

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.engine.offline import converse
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import fetch_stats
from tests.conformance import DATA, make_core

PROJECT = Path(__file__).resolve().parents[1]
TOKEN = "a token"
NUM_SLOTS = 2


@dataclass(frozen=True)
class Serving:
    """A running engine."""

    address: EngineAddress
    recordings: Path

    async def wait_used(self, num_slots: int) -> None:
        """Wait until as many slots are taken."""
        for _ in range(1_000):
            if (await fetch_stats(self.address, token=TOKEN)).used == num_slots:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"there are never {num_slots} slots in use")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    recordings = tmp_path_factory.mktemp("recordings")
    options = ["--model", str(DATA / "tiny16" / "checkpoint"), "--slots", str(NUM_SLOTS)]
    listen = ["--device", "cpu", "--listen", "127.0.0.1:0", "--nvidia-protocol"]
    with subprocess.Popen(
        [sys.executable, "-m", "livekit_personaplex.cli.main", "serve", *options, *listen]
        + ["--record", str(recordings)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PERSONAPLEX_TOKEN": TOKEN},
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready "), ready
            yield Serving(EngineAddress.parse(ready.split()[1]), recordings)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20.0) == 0
        finally:
            process.kill()


@dataclass
class PluginCaller:
    """LiveKit's plugin as its `AgentSession` uses it, and what it gave."""

    session: llm.RealtimeSession
    text: str = ""
    samples: list[np.ndarray] = field(default_factory=list)
    errors: list[llm.RealtimeModelError] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session.on("error", self.errors.append)
        self.session.on(
            "generation_created",
            lambda event: self.tasks.append(asyncio.create_task(self._take(event))),
        )

    @property
    def num_samples(self) -> int:
        """Samples of the agent so far."""
        return sum(map(len, self.samples))

    async def say(self, pcm: np.ndarray) -> None:
        """Push 10 ms at a time, as LiveKit does, in time."""
        loop = asyncio.get_running_loop()
        begin_s, size = loop.time(), SAMPLE_RATE_HZ // 100
        for index, first in enumerate(range(0, len(pcm), size)):
            piece = pcm[first : first + size]
            self.session.push_audio(rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, len(piece)))
            await asyncio.sleep(begin_s + (index + 1) * 0.01 - loop.time())

    async def _take(self, event: llm.GenerationCreatedEvent) -> None:
        async for message in event.message_stream:
            await asyncio.gather(self._take_text(message), self._take_audio(message))

    async def _take_text(self, message: llm.MessageGeneration) -> None:
        async for text in message.text_stream:
            self.text += str(text)

    async def _take_audio(self, message: llm.MessageGeneration) -> None:
        async for frame in message.audio_stream:
            self.samples.append(np.frombuffer(frame.data, dtype=np.int16))


@asynccontextmanager
async def plugin_caller(
    serving: Serving, *, voice: str = "TINY0", persona: str = "", seed: int = 1
) -> AsyncIterator[PluginCaller]:
    async with aiohttp.ClientSession() as http:
        model = RealtimeModel(
            base_url=f"ws://{serving.address}",
            voice=voice,
            text_prompt=persona,
            seed=seed,
            http_session=http,
        )
        caller = PluginCaller(model.session())
        try:
            yield caller
        finally:
            await caller.session.aclose()
            await asyncio.gather(*caller.tasks)


def user_pcm(num_frames: int) -> np.ndarray:
    pcm, _ = soundfile.read(DATA / "tiny16" / "user.wav", dtype="int16")
    return np.asarray(pcm[: num_frames * FRAME_SAMPLES])


def find_recording(folder: Path, persona: str) -> Path:
    """Wait for the recording of the session with this persona: it is written after the end."""
    for _ in range(1_000):
        for path in folder.glob("*.safetensors"):
            with safe_open(path, "numpy") as recording:
                if recording.metadata()["persona"] == persona:
                    return path
        time.sleep(0.02)
    raise AssertionError(f"no session had the persona {persona!r}")


def check_recording(serving: Serving, persona: str) -> str:
    """The session with this persona said what the model says to what it heard; gives its words."""
    path = find_recording(serving.recordings, persona)
    with safe_open(path, "numpy") as recording:
        about = recording.metadata()
        heard, tokens = recording.get_tensor("frames"), recording.get_tensor("tokens")
    core = make_core("tiny16")
    sampling = Sampling(**json.loads(about["sampling"]))
    frames = [*heard, np.zeros(FRAME_SAMPLES, dtype=np.int16)]  # the last is heard by nobody
    said = converse(core, core.prepare(about["voice"], persona), sampling, frames)
    assert np.array_equal(said.tokens[:, : tokens.shape[1]], tokens)
    return said.text


def test_livekits_plugin_holds_conversations_side_by_side(serving: Serving) -> None:
    personas = ["You are Ann.", "You are Bob."]

    async def hold_call(persona: str, seed: int) -> PluginCaller:
        async with plugin_caller(serving, persona=persona, seed=seed) as caller:
            await caller.say(user_pcm(25))
            for _ in range(1_000):  # it may have taken a while to open
                if caller.text and caller.num_samples > 10 * FRAME_SAMPLES:
                    break
                await asyncio.sleep(0.02)
        return caller

    async def run() -> list[PluginCaller]:
        callers = await asyncio.gather(*(hold_call(each, i) for i, each in enumerate(personas)))
        await serving.wait_used(0)
        return callers

    callers = asyncio.run(run())
    for persona, caller in zip(personas, callers, strict=True):
        assert caller.errors == []
        assert caller.num_samples > 10 * FRAME_SAMPLES
        words = check_recording(serving, persona)
        for dropped in "\0\3":  # the plugin takes these for padding
            words = words.replace(dropped, "")
        assert caller.text and words.startswith(caller.text)
    assert callers[0].text != callers[1].text


def test_livekits_plugin_is_told_that_an_engine_is_full_and_does_not_knock_for_ever(
    serving: Serving,
) -> None:
    async def run() -> None:
        async with plugin_caller(serving) as one, plugin_caller(serving) as two:
            await asyncio.gather(one.say(user_pcm(3)), two.say(user_pcm(3)))
            await serving.wait_used(NUM_SLOTS)
            async with plugin_caller(serving) as late:
                for _ in range(1_000):
                    if late.errors:
                        break
                    await asyncio.sleep(0.01)
                (error,) = late.errors
                assert not error.recoverable and "503" in str(error.error)
                await asyncio.sleep(0.1)
                assert (await fetch_stats(serving.address, token=TOKEN)).refused == 1
        await serving.wait_used(0)

    asyncio.run(run())


def test_the_headless_client_takes_a_recording_and_gives_one_with_words(
    serving: Serving, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.wav", tmp_path / "out.wav"
    soundfile.write(source, np.repeat(user_pcm(20), 2), 2 * SAMPLE_RATE_HZ)
    persona = "You are a headless café."
    done = subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "headless_client.py")]
        + ["--url", f"ws://{serving.address}", "--voice", "TINY0", "--persona", persona]
        + ["--seed", "3", "--input", str(source), "--output", str(output), "--listen-on-s", "0.5"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    spoken, rate_hz = soundfile.read(output)
    assert rate_hz == SAMPLE_RATE_HZ and spoken.any()
    assert 1.5 < len(spoken) / SAMPLE_RATE_HZ < 4.0, "as long as the recording and the silence"
    asyncio.run(serving.wait_used(0))
    words = check_recording(serving, persona)
    assert len(done.stdout) > 1 and f"{words}\n".startswith(done.stdout.decode()[:-1])


def test_the_headless_client_says_why_it_was_refused(serving: Serving, tmp_path: Path) -> None:
    source = tmp_path / "in.wav"
    soundfile.write(source, user_pcm(2), SAMPLE_RATE_HZ)
    done = subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "headless_client.py")]
        + ["--url", f"ws://{serving.address}", "--voice", "NOBODY"]
        + ["--input", str(source), "--output", str(tmp_path / "out.wav")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "400" in done.stderr
