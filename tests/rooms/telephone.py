"""A telephone in a room: a participant as LiveKit's SIP bridge makes them, on a line as theirs."""

import json
from collections.abc import Mapping
from typing import Literal

import numpy as np
import soxr
from livekit import api, rtc
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.caller import AGENT_NAME, Caller
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from tests.rooms.g711 import decode, encode

Law = Literal["mu", "A"]

LINE_RATE_HZ = 8_000
PACKET_SAMPLES = 160
KEYS = "0123456789*#"
STATUS = "sip.callStatus"
SILENCE_RMS = 40
"""Quieter packets are not sent: silence suppression."""
COMFORT_RMS = 12


class Telephone(Caller):
    """A caller of kind SIP. Who is rung answers late, presses keys, hangs up when they like."""

    def __init__(self, identity: str) -> None:
        super().__init__(identity)
        self.keys = ""
        self.gone: rtc.DisconnectReason.ValueType | None = None
        self.room.on("sip_dtmf_received", self._on_key)
        self.room.on("disconnected", self._on_disconnected)

    @classmethod
    async def connect(
        cls,
        server: LiveKitCredentials,
        *,
        room: str,
        status: str = "active",
        dispatch: Mapping[str, object],
    ) -> "Telephone":
        """Join a room of its own, into which this calls the agent."""
        telephone = cls("phone")
        agent = api.RoomAgentDispatch(agent_name=AGENT_NAME, metadata=json.dumps(dict(dispatch)))
        grants = api.VideoGrants(room_join=True, room=room, can_update_own_metadata=True)
        attributes = {STATUS: status, "sip.phoneNumber": "+15105550123", "sip.callID": "SCL_1"}
        token = (
            api.AccessToken(server.api_key, server.api_secret)
            .with_identity(telephone.identity)
            .with_kind("sip")
            .with_attributes(attributes)
            .with_grants(grants)
            .with_room_config(api.RoomConfiguration(agents=[agent], departure_timeout=1))
        )
        await telephone.room.connect(server.url, token.to_jwt())
        return telephone

    async def change(self, status: str) -> None:
        """Tell the room how the call is: dialing, ringing, active."""
        await self.room.local_participant.set_attributes({STATUS: status})

    async def press(self, key: str) -> None:
        """Press a key."""
        await self.room.local_participant.publish_dtmf(code=KEYS.index(key), digit=key)

    async def until_gone(self, *, timeout_s: float) -> None:
        """Wait until the other side has hung up."""
        await self.until(lambda: self.gone is not None, what="the end", timeout_s=timeout_s)

    def _on_key(self, event: rtc.SipDTMF) -> None:
        self.keys += event.digit
        self._changed.set()

    def _on_disconnected(self, reason: rtc.DisconnectReason.ValueType) -> None:
        self.gone = reason
        self._changed.set()


def over_the_line(
    samples: NDArray[np.int16], *, law: Law, loss: float = 0.0, seed: int = 0
) -> NDArray[np.int16]:
    """What a bridge gets of somebody's voice: 8 kHz, G.711, packets that are lost or not sent.

    Args:
        samples: ``[n] int16`` at 24 kHz.
        law: Of G.711: mu in North America and Japan, A elsewhere.
        loss: Share of packets that are lost; the bridge plays silence instead.
        seed: Of losses and noise.

    Returns:
        ``[n'] int16`` at 24 kHz, within a packet of the same length.
    """
    narrow = soxr.resample(samples, SAMPLE_RATE_HZ, LINE_RATE_HZ)
    packets = narrow[: len(narrow) // PACKET_SAMPLES * PACKET_SAMPLES].reshape(-1, PACKET_SAMPLES)
    random = np.random.default_rng(seed)
    heard = decode(encode(packets, law), law)
    level = np.sqrt(np.mean(np.square(packets.astype(np.float64)), axis=1))
    is_unsent = level < SILENCE_RMS
    noise = random.normal(0, COMFORT_RMS, size=heard.shape).astype(np.int16)
    heard[is_unsent] = noise[is_unsent]
    heard[~is_unsent & (random.random(len(heard)) < loss)] = 0
    return np.asarray(soxr.resample(heard.reshape(-1), LINE_RATE_HZ, SAMPLE_RATE_HZ))


def ringback(duration_s: float) -> NDArray[np.int16]:
    """The tone that a bridge plays into the room while it rings."""
    time_s = np.arange(round(duration_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tone = np.sin(2 * np.pi * 440 * time_s) + np.sin(2 * np.pi * 480 * time_s)
    return np.rint(4_000 * tone).astype(np.int16)
