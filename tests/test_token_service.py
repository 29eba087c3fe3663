"""examples/token_service.py: who may call; and no caller chooses what the agent is told."""

import asyncio
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from livekit import api, rtc

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.plugin.options import PersonaPlexOptions

pytestmark = pytest.mark.room

PROJECT = Path(__file__).resolve().parents[1]
SERVICE = runpy.run_path(str(PROJECT / "examples" / "token_service.py"))
LOGGED_IN = {"Authorization": "Bearer a-long-secret"}


@pytest.fixture(autouse=True)
def environment(livekit: LiveKitCredentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEKIT_URL", livekit.url)
    monkeypatch.setenv("LIVEKIT_API_KEY", livekit.api_key)
    monkeypatch.setenv("LIVEKIT_API_SECRET", livekit.api_secret)
    monkeypatch.setenv("CALLERS", '{"a-long-secret": "alice"}')
    monkeypatch.setenv("ORIGINS", "https://example.com")


@asynccontextmanager
async def service() -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(SERVICE["make_app"]())) as client:
        yield client


def test_joining_with_its_token_calls_the_agent_with_the_services_own_metadata(
    livekit: LiveKitCredentials,
) -> None:
    asked = {"room_name": "other", "room_config": {"agents": [{"agent_name": "x"}]}}

    async def scenario() -> None:
        async with service() as client:
            response = await client.post("/token?agent=library", headers=LOGGED_IN, json=asked)
            assert response.status == 201
            call = await response.json()
        room = rtc.Room()
        await room.connect(call["server_url"], call["participant_token"])
        try:
            assert room.name.startswith("library-")
            assert room.local_participant.identity == "alice"
            url = livekit.url.replace("ws", "http")
            async with api.LiveKitAPI(url, livekit.api_key, livekit.api_secret) as server:
                (dispatch,) = await server.agent_dispatch.list_dispatch(room.name)
        finally:
            await room.disconnect()
        assert dispatch.agent_name == "personaplex"
        assert json.loads(dispatch.metadata) == SERVICE["AGENTS"]["library"]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", SERVICE["AGENTS"])
def test_its_agents_are_what_our_agent_takes(name: str) -> None:
    options = PersonaPlexOptions().with_metadata(json.dumps(SERVICE["AGENTS"][name]))
    assert options.persona


def test_strangers_get_no_token_and_other_sites_no_answer() -> None:
    async def scenario() -> None:
        async with service() as client:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
                assert (await client.post("/token", headers=headers)).status == 401
            assert (await client.post("/token?agent=boss", headers=LOGGED_IN)).status == 404
            ours = await client.post(
                "/token", headers={**LOGGED_IN, "Origin": "https://example.com"}
            )
            assert ours.headers["Access-Control-Allow-Origin"] == "https://example.com"
            refusal = await client.post("/token", headers={"Origin": "https://example.com"})
            assert refusal.status == 401
            assert refusal.headers["Access-Control-Allow-Origin"] == "https://example.com"
            foreign = await client.post("/token", headers={**LOGGED_IN, "Origin": "https://e.com"})
            assert "Access-Control-Allow-Origin" not in foreign.headers

    asyncio.run(scenario())
