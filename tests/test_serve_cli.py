"""The command line, and ``serve`` as a person runs it, on the small checkpoint."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from safetensors import safe_open

from livekit_personaplex.audio import split_frames
from livekit_personaplex.cli import serve
from livekit_personaplex.cli.main import COMMANDS, main
from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.errors import CapacityError, ConfigError
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import EngineSession, fetch_stats, fetch_voices
from livekit_personaplex.wire.protocol import OpenRequest
from livekit_personaplex.wire.supervisor import serve_command
from tests.engine_harness import talk

TINY = Path(__file__).parent / "data" / "tiny16"
PROGRAM = [sys.executable, "-m", "livekit_personaplex.cli.main"]
GREEDY = Sampling(greedy=True, seed=1)
PERSONA = json.loads((TINY / "golden.json").read_text(encoding="utf-8"))["persona"]
NUM_FRAMES = 60


@pytest.fixture(scope="module")
def golden_tokens() -> NDArray[np.int64]:
    with safe_open(TINY / "golden.safetensors", "numpy") as golden:
        return golden.get_tensor("pt_persona.tokens")[:9, :NUM_FRAMES]


@pytest.fixture(scope="module")
def caller_frames() -> list[bytes]:
    pcm, _ = soundfile.read(TINY / "user.wav", dtype="int16")
    return [frame.tobytes() for frame in split_frames(pcm)[: NUM_FRAMES - 1]]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineAddress]:
    """An engine with two slots; stopped by SIGTERM at the end, which must leave nothing."""
    folder = tmp_path_factory.mktemp("serve")
    address = f"unix:{folder}/run/engine.sock"
    options = ["--model", str(TINY / "checkpoint"), "--slots", "2", "--device", "cpu"]
    with subprocess.Popen(
        [*PROGRAM, "serve", *options, "--listen", address, "--record", str(folder / "recordings")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready {address}\n"
            yield EngineAddress.parse(address)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20.0) == 0
        finally:
            process.kill()
    assert [path.name for path in folder.iterdir()] == ["recordings"]


async def hold_call(address: EngineAddress, frames: list[bytes]) -> NDArray[np.int64]:
    """Talk with TINY0 in greedy mode; gives the tokens [9, N]."""
    request = OpenRequest(voice="TINY0", persona=PERSONA, sampling=GREEDY)
    session = await EngineSession.open(address, request)
    received = await talk(session, frames)
    await session.aclose()
    return np.array([frame.tokens for frame in received]).T


def test_two_calls_at_once_say_what_the_reference_says(
    serving: EngineAddress, golden_tokens: NDArray[np.int64], caller_frames: list[bytes]
) -> None:
    async def run() -> list[NDArray[np.int64]]:
        calls = (hold_call(serving, caller_frames), hold_call(serving, caller_frames))
        return await asyncio.gather(*calls)

    for tokens in asyncio.run(run()):
        assert np.array_equal(tokens, golden_tokens)


def test_a_call_in_a_used_slot_beside_others_that_come_and_go_says_the_same(
    serving: EngineAddress, golden_tokens: NDArray[np.int64], caller_frames: list[bytes]
) -> None:
    async def disturb(until: asyncio.Future[NDArray[np.int64]]) -> int:
        num_visits = 0
        while not until.done():
            request = OpenRequest(voice="TINY0", persona="Hm.", sampling=Sampling(seed=num_visits))
            session = await EngineSession.open(serving, request)
            await talk(session, caller_frames[: num_visits % 4])
            await session.aclose()
            num_visits += 1
        return num_visits

    async def run() -> NDArray[np.int64]:
        call = asyncio.ensure_future(hold_call(serving, caller_frames))
        assert await disturb(call) >= 3
        return await call

    assert np.array_equal(asyncio.run(run()), golden_tokens)


def test_a_full_engine_and_an_unknown_voice_are_refused_and_counted(
    serving: EngineAddress,
) -> None:
    async def run() -> None:
        before = await fetch_stats(serving)
        request = OpenRequest(voice="TINY0", persona="", sampling=Sampling())
        sessions = [await EngineSession.open(serving, request) for _ in range(2)]
        with pytest.raises(CapacityError, match="all 2 slots"):
            await EngineSession.open(serving, request)
        await asyncio.gather(*(session.aclose() for session in sessions))
        with pytest.raises(ConfigError, match="TINY0"):
            unknown = OpenRequest(voice="NOVA", persona="", sampling=Sampling())
            await EngineSession.open(serving, unknown)
        after = await fetch_stats(serving)
        assert (after.opened - before.opened, after.refused - before.refused) == (2, 2)
        assert "TINY0" in await fetch_voices(serving)

    asyncio.run(run())


def test_a_call_that_leaves_in_mid_prompt_gives_its_slot_back(serving: EngineAddress) -> None:
    long_persona = "You work for a library. " * 2

    async def run() -> None:
        for delay_s in (0.0, 0.005, 0.01, 0.02):
            request = OpenRequest(voice="TINY0.wav", persona=long_persona, sampling=Sampling())
            openings = [asyncio.create_task(EngineSession.open(serving, request)) for _ in range(2)]
            await asyncio.sleep(delay_s)
            for opening in openings:
                opening.cancel()
            for opening in await asyncio.gather(*openings, return_exceptions=True):
                if isinstance(opening, EngineSession):
                    await opening.aclose()
            end_s = asyncio.get_running_loop().time() + 20.0
            while (await fetch_stats(serving)).used:
                assert asyncio.get_running_loop().time() < end_s, "a slot stays taken"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "/nowhere", "--listen", "unix:/tmp/personaplex-test.sock"], "/nowhere"),
        (["--listen", "somewhere"], "an engine's address is unix:PATH, HOST:PORT"),
        (["--listen", "127.0.0.1:0"], "needs a token: set PERSONAPLEX_TOKEN"),
        (
            ["--listen", "unix:/tmp/personaplex-test.sock", "--slots", "0"],
            "slots must be 1 or more",
        ),
        (
            ["--listen", "unix:/tmp/personaplex-test.sock", "--record", f"{__file__}/calls"],
            "recordings cannot be written to",
        ),
    ],
)
def test_what_a_person_can_put_right_is_one_line_and_no_traceback(
    options: list[str], told: str
) -> None:
    done = subprocess.run(
        [*PROGRAM, "serve", "--device", "cpu", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    *log, line = done.stderr.splitlines()
    assert line.startswith("livekit-personaplex: error: ") and told in line
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_supervisor_and_serve_mean_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(
        model="some folder/model",
        slots=7,
        device="cpu",
        dtype="bfloat16",
        kv="fp8",
        listen=EngineAddress(host="127.0.0.1", port=8700),
        token="secret",
        voices_dir=Path("my voices"),
        record_dir=Path("recordings"),
        max_backlog_frames=9,
        tick_timeout_s=3.5,
        nvidia_protocol=True,
        nvidia_client_dir=Path("client/dist"),
    )
    given = []

    def note(
        settings: EngineSettings, load: Core, *, announce: object, exit_with_parent: bool
    ) -> int:
        given.append((settings, exit_with_parent))
        return 0

    monkeypatch.setattr(serve, "run_engine", note)
    for each in (settings, EngineSettings(listen=EngineAddress(unix_path="/run/engine.sock"))):
        monkeypatch.setattr(os, "environ", each.child_environment())
        command = serve_command(each)
        assert "secret" not in " ".join(command)
        assert command[:3] == PROGRAM and main(command[3:]) == 0
        assert given.pop() == (each, True)


def test_help_names_every_command_and_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from livekit_personaplex.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'torch' not in sys.modules, 'torch is loaded'"
    )
    overall = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    for command in COMMANDS:
        assert f"{command.name} " in overall.stdout and command.help in overall.stdout
    of_serve = subprocess.run(
        [sys.executable, "-c", code, "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "unix:PATH" in of_serve.stdout and "exit-with-parent" not in of_serve.stdout


@pytest.mark.parametrize("argv", [["dance"], ["serve"], ["serve", "--slots", "many"], ["--loud"]])
def test_a_wrong_command_line_exits_with_its_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: livekit-personaplex" in capsys.readouterr().err
