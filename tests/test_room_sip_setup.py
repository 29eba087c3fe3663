"""What a telephone provider's set-up is made of is accepted by a real LiveKit server with Redis."""

import asyncio
import contextlib
import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from livekit import api

from livekit_personaplex.demo.livekit_server import (
    LiveKitCredentials,
    LocalLiveKitServer,
    find_livekit_server,
)
from livekit_personaplex.demo.process import LoggedProcess

pytestmark = pytest.mark.room

PROJECT = Path(__file__).resolve().parents[1]
FILES = PROJECT / "examples" / "telephony"


@pytest.fixture(scope="module")
def telephony() -> Iterator[LiveKitCredentials]:
    """A LiveKit server that has a Redis."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed; on Debian: apt-get install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with LoggedProcess("redis-server", [binary, *options]) as redis:
        wait_until_listening(port, redis)
        address = f"127.0.0.1:{port}"
        with LocalLiveKitServer(find_livekit_server(PROJECT), redis=address) as server:
            yield server.credentials


def wait_until_listening(port: int, process: LoggedProcess) -> None:
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise AssertionError(f"Redis did not listen; it wrote:\n{process.tail()}")


def read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def test_trunks_and_the_rule_that_calls_the_agent_are_accepted(
    telephony: LiveKitCredentials,
) -> None:
    inbound = json_format.Parse(read("inbound_trunk.json"), api.CreateSIPInboundTrunkRequest())
    outbound = json_format.Parse(read("outbound_trunk.json"), api.CreateSIPOutboundTrunkRequest())
    rule = json_format.Parse(read("dispatch_rule.json"), api.CreateSIPDispatchRuleRequest())

    async def scenario() -> None:
        http = telephony.url.replace("ws://", "http://")
        async with api.LiveKitAPI(http, telephony.api_key, telephony.api_secret) as livekit:
            await livekit.sip.create_inbound_trunk(inbound)
            await livekit.sip.create_outbound_trunk(outbound)
            await livekit.sip.create_dispatch_rule(rule)
            trunks = await livekit.sip.list_inbound_trunk(api.ListSIPInboundTrunkRequest())
            calls = await livekit.sip.list_outbound_trunk(api.ListSIPOutboundTrunkRequest())
            rules = await livekit.sip.list_dispatch_rule(api.ListSIPDispatchRuleRequest())
            assert list(trunks.items[0].numbers) == list(inbound.trunk.numbers)
            assert calls.items[0].address == outbound.trunk.address
            (agent,) = rules.items[0].room_config.agents
            assert agent.agent_name == "personaplex"
            assert json.loads(agent.metadata).keys() <= {"voice", "persona", "greeting"}

    asyncio.run(scenario())


def test_server_and_bridge_of_the_recipe_share_keys_and_redis() -> None:
    services = yaml.safe_load(read("compose.yaml"))["services"]
    server = yaml.safe_load(services["livekit"]["environment"]["LIVEKIT_CONFIG"])
    bridge = yaml.safe_load(services["sip"]["environment"]["SIP_CONFIG_BODY"])
    assert server["redis"] == bridge["redis"]
    assert server["keys"] == {bridge["api_key"]: bridge["api_secret"]}
    assert bridge["ws_url"].endswith(f":{server['port']}")
