"""NVIDIA's protocol on a real socket, with a fake core: who is served, heard, refused and ended."""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from safetensors import safe_open
from yarl import URL

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ, split_frames
from livekit_personaplex.engine import session
from livekit_personaplex.engine.nvidia_chat import PAGE_DEAF_S
from livekit_personaplex.engine.nvidia_page import check_page
from livekit_personaplex.engine.opus import check_opus
from livekit_personaplex.errors import CapacityError, ConfigError
from tests.engine_harness import RunningEngine, running_engine, said, talk, wait_for
from tests.fakes import FakeCore, expected_talk, user_frames
from tests.nvidia_client import ChatClient, chat

ANN = {"voice_prompt": "ANN.pt", "text_prompt": "You are Ann.", "seed": "1"}
SECRET = "open sesame"
ON_TCP = {"listen": "127.0.0.1:0", "token": SECRET}


def serving(core: FakeCore, folder: Path, **settings: Any) -> Any:
    return running_engine(core, folder, nvidia_protocol=True, **settings)


PITCHES_HZ = (300.0, 500.0, 800.0, 1_300.0)


def tone(caller: int, *, num_frames: int) -> list[bytes]:
    """What a caller says: a sine of its own pitch."""
    time_s = np.arange(num_frames * FRAME_SAMPLES) / SAMPLE_RATE_HZ
    pcm = (8_000 * np.sin(2 * np.pi * PITCHES_HZ[caller] * time_s)).astype(np.int16)
    return [frame.tobytes() for frame in split_frames(pcm)]


def pitch_hz(frames: np.ndarray) -> float:
    """The strongest pitch in what a session heard."""
    spectrum = np.abs(np.fft.rfft(frames.reshape(-1)))
    return float(spectrum.argmax() * SAMPLE_RATE_HZ / frames.size)


async def refusal(running: RunningEngine, query: dict[str, str], **options: Any) -> tuple[int, str]:
    """Status and body of the answer to a chat that is not to be."""
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(running.address.unix_path)
        if running.address.is_unix
        else None
    ) as http:
        options["headers"] = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            **options.get("headers", {}),
        }
        url = running.address.url("/api/chat")
        async with http.get(url, params=query, **options) as response:
            return response.status, await response.text()


def test_many_at_once_each_have_their_own_conversation(tmp_path: Path) -> None:
    voices = {"ANN": "You are Ann.", "BOB": "You are Bob."}
    callers = [(voice, persona, seed) for voice, persona in voices.items() for seed in (1, 2)]

    async def converse(running: RunningEngine, voice: str, persona: str, seed: int) -> ChatClient:
        query = {"voice_prompt": f"{voice}.pt", "text_prompt": persona, "seed": str(seed)}
        async with chat(running.address, query) as client:
            await client.wait_ready()
            listening = asyncio.create_task(client.listen(8))
            await client.say(tone(callers.index((voice, persona, seed)), num_frames=8))
            await listening
            return client

    async def run() -> list[ChatClient]:
        async with serving(FakeCore(4), tmp_path, slots=4, record_dir=tmp_path / "kept") as running:
            clients = await asyncio.gather(*(converse(running, *each) for each in callers))
            await running.wait_unused()
            return clients

    clients = asyncio.run(run())
    kept = list((tmp_path / "kept").glob("*.safetensors"))
    assert len(kept) == len(callers)
    for path in kept:
        with safe_open(path, "numpy") as recording:
            about, heard = recording.metadata(), recording.get_tensor("frames")
        caller = (about["voice"], about["persona"], json.loads(about["sampling"])["seed"])
        words = expected_talk(
            [pcm.tobytes() for pcm in heard], voice=caller[0], persona=caller[1], seed=caller[2]
        )
        index = callers.index(caller)
        client = clients[index]
        assert client.text and "".join(words.text).startswith(client.text)
        assert pitch_hz(heard) == pytest.approx(PITCHES_HZ[index], abs=20.0)
        assert [len(pcm) for pcm in client.pcm] == [FRAME_SAMPLES] * 8


def test_an_agent_talks_on_while_nothing_comes_of_its_caller(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path, record_dir=tmp_path / "kept") as running:
            async with chat(running.address, ANN) as client:
                await client.wait_ready()
                await client.listen(6)
                await client.send_audio(user_frames(1)[0])
                await client.listen(9)
            await running.wait_unused()
            assert running.engine.stats().dropped_frames == 0

    asyncio.run(run())
    (path,) = (tmp_path / "kept").glob("*.safetensors")
    with safe_open(path, "numpy") as recording:
        loudest = np.abs(recording.get_tensor("frames").astype(np.int32)).max(axis=1)
    assert not loudest[:5].any() and loudest.any()


def test_the_same_seed_says_the_same_and_another_does_not(tmp_path: Path) -> None:
    async def first_words(running: RunningEngine, seed: str) -> np.ndarray:
        async with chat(running.address, {**ANN, "seed": seed}) as client:
            await client.wait_ready()
            await client.listen(1)
            return client.pcm[0]

    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            first, again, other, any_, another = [
                await first_words(running, seed) for seed in ("7", "7", "8", "-1", "-1")
            ]
            assert np.array_equal(first, again)
            assert not np.array_equal(first, other) and not np.array_equal(any_, another)

    asyncio.run(run())


def test_a_full_engine_refuses_at_once_and_both_protocols_share_its_slots(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(2), tmp_path, slots=2) as running:
            wired = await running.open()
            async with chat(running.address, ANN) as client:
                await client.wait_ready()
                status, body = await refusal(running, ANN)
                assert status == 503
                assert json.loads(body)["code"] == "capacity"
                assert "all 2 slots" in json.loads(body)["message"]
                with pytest.raises(CapacityError):
                    await running.open()
                assert said(await talk(wired, user_frames(3))) == expected_talk(user_frames(3))
            await wait_for(lambda: running.engine.stats().used == 1)
            async with chat(running.address, ANN) as client:
                await client.wait_ready()
            await wired.aclose()
            assert running.engine.stats().refused == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"voice_prompt": "nova"}, "ANN, BOB"),
        ({"voice_prompt": "../../etc/passwd"}, "ANN, BOB"),
        ({"seed": "abc"}, "seed"),
        ({"text_prompt": "x" * 32_769}, "persona"),
        ({"audio_temperature": "hot"}, "audio_temperature"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_upgrade(
    change: dict[str, str], message: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            status, body = await refusal(running, {**ANN, **change})
            assert (status, json.loads(body)["code"]) == (400, "config")
            assert message in json.loads(body)["message"]
            assert running.engine.stats().used == 0
            assert running.engine.stats().refused == 1

    asyncio.run(run())


def test_an_error_of_the_prompt_gives_the_slot_back(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ConfigError("this persona is too long")

    async def run() -> None:
        async with serving(FakeCore(on_prepare=refuse), tmp_path) as running:
            status, body = await refusal(running, ANN)
            assert (status, json.loads(body)["message"]) == (400, "this persona is too long")
            assert running.engine.stats().used == 0

    asyncio.run(run())


def test_the_longest_persona_and_none_at_all_reach_the_core(tmp_path: Path) -> None:
    core = FakeCore()
    longest = "ö" * (32_768 // 2)

    async def run() -> None:
        async with serving(core, tmp_path) as running:
            for text in ({"text_prompt": longest}, {"text_prompt": ""}, {}):
                async with chat(running.address, {"voice_prompt": "BOB", **text}) as client:
                    await client.wait_ready()
                await running.wait_unused()

    asyncio.run(run())
    assert [plan.text for plan in core.opened_plans] == [
        f"BOB/{longest}".encode(),
        b"BOB/",
        b"BOB/",
    ]


@pytest.mark.parametrize("num_prompt_ticks", [1, 10**9])
def test_a_caller_who_leaves_in_mid_word_or_while_it_opens_frees_the_slot(
    num_prompt_ticks: int, tmp_path: Path
) -> None:
    async def run() -> None:
        core = FakeCore(prompt_ticks=num_prompt_ticks)
        async with serving(core, tmp_path) as running:
            for _ in range(5):
                async with chat(running.address, ANN) as client:
                    if num_prompt_ticks == 1:
                        await client.wait_ready()
                        await client.send_audio(user_frames(1)[0])
                        await client.listen(1)
                    assert client.ws._response.connection is not None
                    client.ws._response.connection.transport.abort()
                await running.wait_unused()

    asyncio.run(run())


def test_what_the_protocol_does_not_know_is_ignored(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            async with chat(running.address, ANN) as client:
                await client.ws.send_str("hello")
                for message in (
                    b"",
                    b"\x00\x00\x00",
                    b"\x03\x00",
                    b"\x04{}",
                    b"\x06",
                    b"\xff" * 99,
                ):
                    await client.ws.send_bytes(message)
                await client.wait_ready()
                await client.listen(3)
                assert client.error == ""

    asyncio.run(run())


def flood(client: ChatClient) -> bytes:
    silence = np.zeros(FRAME_SAMPLES, dtype=np.float32)
    return b"".join(client.writer.append_pcm(silence) for _ in range(70))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda client: b"no Ogg page at all" * 9, "Opus"),
        (lambda client: flood(client).replace(b"OpusHead", b"OpusTail", 1)[:300] * 9, "Opus"),
        (flood, "5 s of audio"),
    ],
)
def test_a_broken_stream_ends_its_own_chat_only(
    make: Callable[[ChatClient], bytes], message: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with serving(FakeCore(2), tmp_path, slots=2) as running:
            neighbour = await running.open()
            async with chat(running.address, ANN) as client:
                await client.wait_ready()
                await client.ws.send_bytes(b"\x01" + make(client))
                await client.listen()
                assert message in client.error
                assert client.ws.close_code == 1002
            await wait_for(lambda: running.engine.stats().used == 1)
            frames = user_frames(3)
            assert said(await talk(neighbour, frames)) == expected_talk(frames)
            await neighbour.aclose()

    asyncio.run(run())


def test_audio_far_ahead_of_time_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            async with chat(running.address, ANN) as client:
                await client.wait_ready()
                for pcm in user_frames(1) * 160:
                    await client.send_audio(pcm)
                await client.listen()
                assert "ahead of time" in client.error and client.ws.close_code == 1002

    asyncio.run(run())


def test_a_client_that_does_not_read_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_UNREAD_MESSAGES", 0)

    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            error, close_code = await last_words(running, lambda: None, is_ready=False)
            assert "unread" in error and close_code == 1008

    asyncio.run(run())


async def last_words(
    running: RunningEngine, end_it: Callable[[], None], *, is_ready: bool = True
) -> tuple[str, int | None]:
    """What a chat is told, and closed with, when it is ended from behind."""
    async with chat(running.address, ANN) as client:
        if is_ready:
            await client.wait_ready()
        end_it()
        await client.listen()
        return client.error, client.ws.close_code


def test_an_engine_that_stops_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            error, close_code = await last_words(running, running.engine.begin_stop)
            assert "shutting down" in error and close_code == 1001

    asyncio.run(run())


def test_an_engine_that_fails_says_so(tmp_path: Path) -> None:
    is_broken = threading.Event()

    def tick(number: int) -> None:
        if is_broken.is_set():
            raise RuntimeError("the device is gone")

    async def run() -> None:
        async with serving(FakeCore(on_tick=tick), tmp_path) as running:
            error, close_code = await last_words(running, is_broken.set)
            assert "engine failed" in error and close_code == 1011

    asyncio.run(run())


def test_on_loopback_nvidias_clients_need_no_token_and_ours_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path, **ON_TCP) as running:
            for headers in ({}, {"Origin": "http://localhost:5173"}, {"Origin": "http://[::1]"}):
                async with chat(running.address, ANN, headers=headers) as client:
                    await client.wait_ready()
                await running.wait_unused()
            foreign = ("https://example.com", "http://localhost.example.com", "null", "http://[")
            for origin in foreign:
                status, body = await refusal(running, ANN, headers={"Origin": origin})
                assert status == 403 and "other sites" in body
            with pytest.raises(ConfigError, match="token"):
                await running.open()
            session = await running.open(token=SECRET)
            await session.aclose()

    asyncio.run(run())


def test_elsewhere_the_token_comes_as_a_password_or_as_a_bearer_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path, listen="0.0.0.0:0", token=SECRET) as running:
            for options in (
                {"headers": {"Authorization": basic(SECRET)}},
                {"headers": {"Authorization": f"Bearer {SECRET}", "Origin": "https://example.com"}},
            ):
                async with chat(running.address, ANN, **options) as client:
                    await client.wait_ready()
                await running.wait_unused()
            for wrong in (
                {},
                {"headers": {"Authorization": basic("guess")}},
                {"headers": {"Authorization": basic("")}},
                {"headers": {"Authorization": "Basic ????"}},
                {"headers": {"Authorization": "Bearer guess"}},
                {"headers": {"Origin": "http://localhost"}},
            ):
                status, body = await refusal(running, ANN, **wrong)
                assert status == 401 and "ws://any:TOKEN@" in body

    asyncio.run(run())


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"any:{password}".encode()).decode()


def test_a_page_of_another_site_cannot_use_the_password_that_a_browser_remembers(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path, listen="0.0.0.0:0", token=SECRET) as running:
            host, knows = {"Host": "engine.example.com:8998"}, {"Authorization": basic(SECRET)}
            for origin in ("https://example.com", "null"):
                headers = {**host, **knows, "Origin": origin}
                assert (await refusal(running, ANN, headers=headers))[0] == 403
            own = {**host, **knows, "Origin": "https://engine.example.com"}
            async with chat(running.address, ANN, headers=own) as client:
                await client.wait_ready()
            await running.wait_unused()
            for nonsense in ("[", "engine.example.com:99999999", ""):
                for origin in ("https://example.com", "https://", "https://["):
                    headers = {**own, "Host": nonsense, "Origin": origin}
                    assert (await refusal(running, ANN, headers=headers))[0] == 403
            del own["Authorization"]
            assert (await refusal(running, ANN, headers=own))[0] == 401

    asyncio.run(run())


def test_a_page_is_told_to_begin_when_it_can_hear(tmp_path: Path) -> None:
    deaf_s = 1.0

    async def run() -> None:
        async with serving(FakeCore(2), tmp_path, slots=2) as running:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            headers = {"Origin": "http://localhost:8998"}
            async with chat(running.address, ANN, headers=headers) as page:
                async with chat(running.address, ANN) as program:
                    first_of_page = asyncio.create_task(page.wait_ready())
                    await program.wait_ready()
                    await program.listen(3)
                    assert not first_of_page.done()
                await first_of_page
                assert loop.time() - began_s >= deaf_s
                await page.listen(3)
            assert np.array_equal(page.pcm, program.pcm)

    asyncio.run(run())


def test_a_page_that_leaves_before_it_can_hear_frees_the_slot(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path) as running:
            headers = {"Origin": "http://localhost:8998"}
            for _ in range(3):
                async with chat(running.address, ANN, headers=headers):
                    pass
                await asyncio.wait_for(running.wait_unused(), PAGE_DEAF_S / 2)

    asyncio.run(run())


@pytest.fixture
def page_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>a page</title>", encoding="utf-8")
    (folder / "assets" / "worker.js").write_text("postMessage(1)", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("not of the page", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


async def fetch(
    running: RunningEngine, path: str, **headers: str
) -> tuple[int, str, Mapping[str, str]]:
    """Status, body and headers of the answer to a GET of exactly this path."""
    url = URL(running.address.url("") + path, encoded=True)
    async with aiohttp.ClientSession() as http:
        async with http.get(url, headers=headers) as response:
            return response.status, await response.text(), response.headers


def test_the_page_comes_from_the_address_that_it_chats_with(
    tmp_path: Path, page_folder: Path
) -> None:
    async def run() -> None:
        options = {**ON_TCP, "nvidia_client_dir": page_folder}
        async with serving(FakeCore(), tmp_path, **options) as running:
            status, body, headers = await fetch(running, "/?worker_addr=same")
            assert (status, body) == (200, "<title>a page</title>")
            assert headers["Content-Type"] == "text/html"
            assert (await fetch(running, "/assets/worker.js"))[:2] == (200, "postMessage(1)")
            for path in ("/nothing", "/../secret.txt", "/%2e%2e/secret.txt", "/link.txt"):
                status, body, _ = await fetch(running, path)
                assert status in (403, 404) and "not of the page" not in body
            assert (await fetch(running, "/stats"))[0] == 401
            async with chat(running.address, ANN) as client:
                await client.wait_ready()

    asyncio.run(run())


def test_elsewhere_the_page_asks_for_the_token(tmp_path: Path, page_folder: Path) -> None:
    async def run() -> None:
        options = {"listen": "0.0.0.0:0", "token": SECRET, "nvidia_client_dir": page_folder}
        async with serving(FakeCore(), tmp_path, **options) as running:
            for path in ("/", "/assets/worker.js"):
                for headers in ({}, {"Authorization": basic("guess")}):
                    status, _, answered = await fetch(running, path, **headers)
                    assert status == 401
                    assert answered["WWW-Authenticate"].startswith("Basic ")
                assert (await fetch(running, path, Authorization=basic(SECRET)))[0] == 200

    asyncio.run(run())


def test_a_folder_without_a_page_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no index\.html; give the folder client/dist"):
        check_page(tmp_path)


def test_without_the_option_the_path_is_not_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(FakeCore(), tmp_path) as running:
            assert (await refusal(running, ANN))[0] == 404
        async with running_engine(FakeCore(), tmp_path, **ON_TCP) as running:
            assert (await refusal(running, ANN))[0] == 404

    asyncio.run(run())


def test_a_request_that_is_no_websocket_takes_no_slot(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(FakeCore(), tmp_path, **ON_TCP) as running:
            async with aiohttp.ClientSession() as http:
                async with http.get(running.address.url("/api/chat"), params=ANN) as response:
                    assert response.status == 400 and "WebSocket" in await response.text()
            assert running.engine.stats().used == 0

    asyncio.run(run())


def test_a_missing_codec_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sphn", None)
    with pytest.raises(ConfigError, match=r"livekit-personaplex\[nvidia\]"):
        check_opus()
