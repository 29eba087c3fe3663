"""A caller: a LiveKit participant with a microphone of recorded speech, who keeps what it hears.

Knows LiveKit and nothing of the model. Everything runs on the caller's event loop.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from livekit import api, rtc

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.microphone import Microphone
from livekit_personaplex.demo.recording import Recording
from livekit_personaplex.errors import PersonaPlexError

AGENT_NAME = "personaplex"
STATE_ATTRIBUTE = "lk.agent.state"
TRANSCRIPT_TOPIC = "lk.transcription"

_HEARD_PIECE_MS = 20
_TOKEN_LIFETIME = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Words:
    """One piece of a transcript, as it arrived.

    Attributes:
        time_s: Monotonic clock of its arrival.
        identity: Who said it.
        segment: The segment it belongs to.
        text: The words.
        is_final: The segment ended with this piece, whose text is empty.
    """

    time_s: float
    identity: str
    segment: str
    text: str
    is_final: bool


def make_token(
    server: LiveKitCredentials,
    *,
    room: str,
    identity: str,
    dispatch: Mapping[str, object] | None,
    departure_timeout_s: int = 20,
) -> str:
    """Make a token to join ``room``; if that creates the room, the agent is called into it.

    Args:
        server: Whose keys sign it.
        room: The room it is good for.
        identity: Who joins with it.
        dispatch: Metadata of the agent's job (voice, persona, seed, ...); None calls no agent.
        departure_timeout_s: How long the room, and the agent in it, outlive the last caller.
    """
    token = (
        api.AccessToken(server.api_key, server.api_secret)
        .with_identity(identity)
        .with_ttl(_TOKEN_LIFETIME)
        .with_grants(api.VideoGrants(room_join=True, room=room))
    )
    if dispatch is not None:
        agent = api.RoomAgentDispatch(agent_name=AGENT_NAME, metadata=json.dumps(dict(dispatch)))
        room_config = api.RoomConfiguration(agents=[agent], departure_timeout=departure_timeout_s)
        token = token.with_room_config(room_config)
    return str(token.to_jwt())


class Caller:
    """One participant in one room, from `join` to `leave`.

    Attributes:
        identity: Who they are in the room.
        room: The LiveKit room, for what this class does not do.
        heard: The other side's voice since its track was subscribed.
        words: Every piece of transcript, in order of arrival.
        agent_states: (monotonic seconds, state) of the agent, in order.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.room = rtc.Room()
        self.heard = Recording()
        self.words: list[Words] = []
        self.agent_states: list[tuple[float, str]] = []
        self._microphone: Microphone | None = None
        self._publication: rtc.LocalTrackPublication | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.room.on("track_subscribed", self._on_track_subscribed)
        self.room.on("participant_attributes_changed", self._on_attributes_changed)
        self.room.on("participant_connected", lambda participant: self._changed.set())
        self.room.on("participant_disconnected", lambda participant: self._changed.set())
        self.room.on("disconnected", lambda reason: self._changed.set())
        self.room.register_text_stream_handler(TRANSCRIPT_TOPIC, self._on_text_stream)

    @classmethod
    async def join(
        cls,
        server: LiveKitCredentials,
        *,
        room: str,
        identity: str = "caller",
        dispatch: Mapping[str, object] | None = None,
        departure_timeout_s: int = 20,
    ) -> "Caller":
        """Connect to ``room``; ``dispatch`` and the timeout as in `make_token`."""
        caller = cls(identity)
        token = make_token(
            server,
            room=room,
            identity=identity,
            dispatch=dispatch,
            departure_timeout_s=departure_timeout_s,
        )
        await caller.room.connect(server.url, token)
        return caller

    @property
    def agent_state(self) -> str | None:
        """The agent's latest state, as it tells the room."""
        return self.agent_states[-1][1] if self.agent_states else None

    @property
    def microphone(self) -> Microphone:
        """The published microphone; `publish` made it."""
        assert self._microphone is not None, "publish() first"
        return self._microphone

    async def publish(self) -> Microphone:
        """Open a microphone and publish it."""
        self._microphone = Microphone()
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        self._publication = await self.room.local_participant.publish_track(
            self._microphone.track, options
        )
        return self._microphone

    async def unpublish(self) -> None:
        """Take the microphone out of the room."""
        if self._publication is not None and self.room.isconnected():
            await self.room.local_participant.unpublish_track(self._publication.sid)
        self._publication = None
        if self._microphone is not None:
            await self._microphone.aclose()

    async def until(self, holds: Callable[[], bool], *, what: str, timeout_s: float) -> None:
        """Wait until something that can be seen from this caller holds.

        Raises:
            PersonaPlexError: It did not within ``timeout_s``; the message says ``what``.
        """
        deadline = time.monotonic() + timeout_s
        while not holds():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise PersonaPlexError(f"waited {timeout_s:g} s for this, in vain: {what}")
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    async def leave(self) -> None:
        """Leave the room and stop everything that runs for this caller.

        Raises:
            Exception: What stopped this caller from hearing or reading while they were there.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        failures = list(self._failures)  # what fails from here on was cut off by leaving
        await self.room.disconnect()
        await self.unpublish()
        if failures:
            raise failures[0]

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)

    def _on_track_subscribed(
        self,
        track: rtc.RemoteTrack,
        publication: rtc.RemoteTrackPublication,
        participant: rtc.RemoteParticipant,
    ) -> None:
        if isinstance(track, rtc.RemoteAudioTrack):
            self._spawn(self._listen(track), "listen")

    def _on_attributes_changed(self, changed: dict[str, str], participant: rtc.Participant) -> None:
        if STATE_ATTRIBUTE in changed:
            self.agent_states.append((time.monotonic(), changed[STATE_ATTRIBUTE]))
            self._changed.set()

    def _on_text_stream(self, reader: rtc.TextStreamReader, identity: str) -> None:
        self._spawn(self._read_words(reader, identity), "transcript")

    async def _listen(self, track: rtc.RemoteAudioTrack) -> None:
        stream = rtc.AudioStream.from_track(
            track=track,
            sample_rate=SAMPLE_RATE_HZ,
            num_channels=1,
            frame_size_ms=_HEARD_PIECE_MS,
        )
        try:
            async for event in stream:
                samples = np.frombuffer(event.frame.data, dtype=np.int16).copy()
                self.heard.append(samples, time.monotonic())
                self._changed.set()
        finally:
            await stream.aclose()

    async def _read_words(self, reader: rtc.TextStreamReader, identity: str) -> None:
        segment = (reader.info.attributes or {}).get("lk.segment_id", reader.info.stream_id)
        # whoever leaves in the middle of a word breaks the stream off: what was said stands
        with contextlib.suppress(rtc.StreamError):
            async for text in reader:
                self._add_words(identity, segment, text, is_final=False)
        self._add_words(identity, segment, "", is_final=True)

    def _add_words(self, identity: str, segment: str, text: str, *, is_final: bool) -> None:
        self.words.append(Words(time.monotonic(), identity, segment, text, is_final))
        self._changed.set()
