# /// script
# requires-python = ">=3.10,<3.14"
# dependencies = ["aiohttp>=3.11,<4", "livekit-api>=1,<2"]
# ///
"""A token service: who may call, and which agent answers, is decided here and not by the client.

    LIVEKIT_URL=wss://... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=... \\
    CALLERS='{"a-long-secret": "alice"}' ORIGINS=https://example.com \\
    uv run examples/token_service.py

POST /token?agent=library with "Authorization: Bearer a-long-secret" answers as LiveKit's token
endpoints do, {"server_url": ..., "participant_token": ...}: clients take it as
`TokenSource.endpoint(...)`, or join with both by themselves.

Three things keep the agent yours. The token's room configuration dispatches it by name when the
room is made. Its metadata is one of AGENTS, so no caller writes a persona. And the token is good
for one room that nobody else is in, for a microphone and nothing else, for minutes.

Behind it belong TLS, your own login in `authenticate`, and a limit on calls for each caller.
"""

import json
import os
import secrets
from datetime import timedelta

from aiohttp import web
from livekit import api

AGENT_NAME = "personaplex"
AGENTS = {
    "friend": {"persona": "You enjoy having a good conversation. Your name is Ann."},
    "library": {
        "voice": os.environ.get("LIBRARY_VOICE", "NATF2"),
        "persona": "You work for Blue Heron Library which is a public library and your name is "
        "Zoe. Information: Open from 9 am to 5 pm. The late fee is 10 cents a day.",
        "temperature": 0.7,
    },
}
TOKEN_LIFETIME = timedelta(minutes=5)  # to join with; a call may last longer
EMPTY_TIMEOUT_S = 30  # a room that nobody joins
DEPARTURE_TIMEOUT_S = 20  # a caller whose network changes finds the call again within it


def authenticate(request: web.Request) -> str:
    """Give the caller's name, from your own login."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    for secret, name in json.loads(os.environ.get("CALLERS", "{}")).items():
        if scheme == "Bearer" and secrets.compare_digest(secret.encode(), given.encode()):
            return str(name)
    raise web.HTTPUnauthorized(text="who are you?")


def make_token(caller: str, agent: str) -> str:
    """Make a token for a room of its own, which calls the agent when the caller joins it."""
    dispatch = api.RoomAgentDispatch(agent_name=AGENT_NAME, metadata=json.dumps(AGENTS[agent]))
    grants = api.VideoGrants(
        room_join=True,
        room=f"{agent}-{secrets.token_hex(8)}",
        can_publish_sources=["microphone"],
        can_publish_data=False,
        can_update_own_metadata=False,
    )
    room = api.RoomConfiguration(
        agents=[dispatch],
        empty_timeout=EMPTY_TIMEOUT_S,
        departure_timeout=DEPARTURE_TIMEOUT_S,
    )
    token = api.AccessToken(os.environ["LIVEKIT_API_KEY"], os.environ["LIVEKIT_API_SECRET"])
    return (
        token.with_identity(caller)
        .with_ttl(TOKEN_LIFETIME)
        .with_grants(grants)
        .with_room_config(room)
        .to_jwt()
    )


async def answer(request: web.Request) -> web.Response:
    """Answer POST /token. What the client's body asks for (room, agents) is not looked at."""
    caller, agent = authenticate(request), request.query.get("agent", "friend")
    if agent not in AGENTS:
        raise web.HTTPNotFound(text=f"no such agent; there are {', '.join(AGENTS)}")
    call = {"server_url": os.environ["LIVEKIT_URL"], "participant_token": make_token(caller, agent)}
    return web.json_response(call, status=201)


@web.middleware
async def allow_own_pages(request: web.Request, handler) -> web.StreamResponse:
    """Let browsers that show your pages read the answers, and no others."""
    try:
        response = web.Response() if request.method == "OPTIONS" else await handler(request)
    except web.HTTPException as refusal:
        response = web.Response(status=refusal.status, text=refusal.text)
    origin = request.headers.get("Origin")
    if origin in os.environ.get("ORIGINS", "").split():
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
        response.headers["Vary"] = "Origin"
    return response


def make_app() -> web.Application:
    """Make the service."""
    app = web.Application(middlewares=[allow_own_pages])
    app.add_routes([web.post("/token", answer), web.options("/token", answer)])
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
