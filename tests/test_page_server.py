"""The server behind the page: whom it answers, what its tokens hold, how it measures personas."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import jwt
import pytest

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.web import server as page_server
from livekit_personaplex.web.server import PageServer, PageSetup
from livekit_personaplex.wire.address import EngineAddress
from tests.engine_harness import running_engine
from tests.fakes import FakeCore

SECRET = "a-secret-of-at-least-32-characters"
LIVEKIT = LiveKitCredentials(url="ws://127.0.0.1:9", api_key="key", api_secret=SECRET)
SETUP = PageSetup(
    livekit=LIVEKIT, engine=EngineEndpoint(address=EngineAddress.parse("unix:/nowhere/engine.sock"))
)


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """These tests need the page's library to be there, not to be run."""
    path = tmp_path / "livekit-client.esm.mjs"
    path.touch()
    monkeypatch.setattr(page_server, "LIVEKIT_CLIENT", path)
    return path


@asynccontextmanager
async def serving(
    setup: PageSetup = SETUP,
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    server = PageServer(setup)
    url = await server.start(0)
    try:
        async with aiohttp.ClientSession() as http:
            yield http, url
    finally:
        await server.close()


def status_of(headers: dict[str, str], path: str = "api/calls") -> int:
    async def ask() -> int:
        async with serving() as (http, url):
            body = {"persona": "You are Bob."}
            async with http.post(url + path, json=body, headers=headers) as response:
                return response.status

    return asyncio.run(ask())


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost", "[::1]:8765"])
def test_it_answers_to_names_of_this_machine(host: str) -> None:
    assert status_of({"Host": host}) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Host": "[::1"},
        {"Host": "10.0.0.7"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_it_refuses_foreign_names_and_other_sites(headers: dict[str, str]) -> None:
    assert status_of(headers) == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_it_is_bound_to_loopback_only(host: str) -> None:
    with pytest.raises(ConfigError, match="on loopback only"):
        PageServer(SETUP, host=host)


def test_without_its_library_it_says_how_to_get_it(library: Path) -> None:
    library.unlink()
    with pytest.raises(ConfigError, match="make web"):
        PageServer(SETUP)


def test_a_token_is_for_one_room_and_calls_the_agent_with_what_was_wished() -> None:
    wishes = {"voice": "NATM1", "persona": "You are Bob.", "seed": 7, "temperature": 0.5}

    async def ask() -> dict[str, str]:
        async with serving() as (http, url):
            async with http.post(f"{url}api/calls", json=wishes) as response:
                answer: dict[str, str] = await response.json()
                return answer

    call = asyncio.run(ask())
    claims = jwt.decode(call["token"], SECRET, algorithms=["HS256"])
    assert claims["video"]["room"] == call["room"]
    assert claims["video"]["canPublishSources"] == ["microphone"]
    assert claims["exp"] - claims["nbf"] <= 900
    (agent,) = claims["roomConfig"]["agents"]
    assert agent["agentName"] == "personaplex"
    assert json.loads(agent["metadata"]) == wishes


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ('{"seed": -1}', "seed must lie in"),
        ('{"voice": "../x"}', "path"),
        ('{"nonsense": 1}', "unknown keys"),
    ],
)
def test_wishes_that_an_agent_would_refuse_are_refused(body: str, part: str) -> None:
    async def ask() -> tuple[int, str]:
        async with serving() as (http, url):
            async with http.post(f"{url}api/calls", data=body) as response:
                return response.status, (await response.json())["error"]

    status, error = asyncio.run(ask())
    assert status == 400
    assert part in error


@pytest.mark.parametrize(
    "body", ["", "[]", "{", '"x"', "[" * 100_000, '{"seed": ' + "9" * 5_000 + "}"]
)
def test_what_is_no_request_is_refused(body: str) -> None:
    async def ask() -> int:
        async with serving() as (http, url):
            headers = {"Content-Type": "application/json; charset=none-such"}
            async with http.post(f"{url}api/measure", data=body, headers=headers) as response:
                return response.status

    assert asyncio.run(ask()) == 400


def test_an_engine_that_is_not_there_is_told() -> None:
    async def ask() -> tuple[int, str]:
        async with serving() as (http, url):
            async with http.get(f"{url}api/options") as response:
                return response.status, (await response.json())["error"]

    status, error = asyncio.run(ask())
    assert status == 503
    assert "no engine answers" in error


def test_a_persona_is_as_long_as_the_engine_says(tmp_path: Path) -> None:
    async def ask() -> dict[str, object]:
        async with running_engine(FakeCore(num_slots=1), tmp_path) as running:
            setup = replace(SETUP, engine=EngineEndpoint(address=running.address))
            async with serving(setup) as (http, url):
                async with http.post(f"{url}api/measure", json={"persona": "You"}) as response:
                    length: dict[str, object] = await response.json()
                    return length

    assert asyncio.run(ask()) == {"tokens": 3, "max_tokens": 2_000, "window": 3_000}
