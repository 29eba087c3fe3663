"""Calls made for the page: a fresh room each, with the agent dispatched into it by name."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from livekit import api

from livekit_personaplex.demo.caller import AGENT_NAME
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.plugin.options import PersonaPlexOptions

_TOKEN_LIFETIME = timedelta(minutes=15)
_EMPTY_TIMEOUT_S = 30
_DEPARTURE_TIMEOUT_S = 10
"""Who loses the connection finds the call again within it; who leaves ends the room at once."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the page needs to join: the server, the room's name, and a token for it."""

    url: str
    room: str
    token: str


@dataclass(slots=True)
class CallDesk:
    """Makes calls on one LiveKit server, and ends those it made.

    Attributes:
        server: Where, and the keys.
    """

    server: LiveKitCredentials
    _wishes: dict[str, str] = field(default_factory=dict)

    def make_call(self, wishes: Mapping[str, Any]) -> Call:
        """Make a token for a new room, which calls the agent when it is joined.

        Args:
            wishes: Voice, persona, sampling and the like, as a job's metadata holds them.

        Raises:
            ConfigError: The agent would refuse them; it reads them with the same parser.
        """
        metadata = json.dumps(dict(wishes))
        PersonaPlexOptions().with_metadata(metadata)
        room = f"talk-{secrets.token_hex(4)}"
        dispatch = api.RoomAgentDispatch(agent_name=AGENT_NAME, metadata=metadata)
        token = (
            api.AccessToken(self.server.api_key, self.server.api_secret)
            .with_identity("you")
            .with_ttl(_TOKEN_LIFETIME)
            .with_grants(
                api.VideoGrants(room_join=True, room=room, can_publish_sources=["microphone"])
            )
            .with_room_config(
                api.RoomConfiguration(
                    agents=[dispatch],
                    empty_timeout=_EMPTY_TIMEOUT_S,
                    departure_timeout=_DEPARTURE_TIMEOUT_S,
                )
            )
        )
        self._wishes[room] = metadata
        return Call(url=self.server.url, room=room, token=str(token.to_jwt()))

    async def call_again(self, room: str) -> bool:
        """Call the agent into a room once more, if none is there.

        LiveKit offers a call to workers once, and hears of a freed slot a moment late. Taking
        the earlier call back ends its job, should one be on its way: there are never two agents.

        Returns:
            Whether it was called.
        """
        if room not in self._wishes:
            return False
        async with self._livekit() as livekit:
            there = await livekit.room.list_participants(api.ListParticipantsRequest(room=room))
            if any(one.kind == api.ParticipantInfo.Kind.AGENT for one in there.participants):
                return False
            for dispatch in await livekit.agent_dispatch.list_dispatch(room):
                await livekit.agent_dispatch.delete_dispatch(dispatch.id, room)
            await livekit.agent_dispatch.create_dispatch(
                api.CreateAgentDispatchRequest(
                    agent_name=AGENT_NAME, room=room, metadata=self._wishes[room]
                )
            )
        return True

    async def end_call(self, room: str) -> None:
        """End a room that was made here, so that its slot is free at once; others are left alone.

        A room that is gone already, or a server that does not answer, is no error: nobody is
        waiting for the end of a call.
        """
        if self._wishes.pop(room, None) is None:
            return
        async with self._livekit() as livekit:
            try:
                await livekit.room.delete_room(api.DeleteRoomRequest(room=room))
            except (api.TwirpError, OSError):
                return

    def _livekit(self) -> api.LiveKitAPI:
        url = self.server.url.replace("ws", "http", 1)
        return api.LiveKitAPI(url, self.server.api_key, self.server.api_secret)
