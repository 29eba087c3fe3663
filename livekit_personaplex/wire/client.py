"""A call's side of the wire: one `EngineSession` per conversation, and the engine's counters.

Everything runs on the caller's asyncio loop and blocks nothing. No torch, no livekit.
"""

import asyncio
from collections import deque
from contextlib import suppress

import aiohttp
from aiohttp import WSMsgType

from livekit_personaplex.audio import FRAME_BYTES
from livekit_personaplex.errors import (
    ConfigError,
    EngineDiedError,
    EngineError,
    PersonaPlexError,
    ProtocolError,
    SessionClosedError,
)
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.error_reports import error_from_report
from livekit_personaplex.wire.frames import pack_user_frame, unpack_agent_frame
from livekit_personaplex.wire.http import (
    engine_errors,
    fetch_stats,
    fetch_voices,
    make_http_session,
)
from livekit_personaplex.wire.protocol import (
    MAX_MESSAGE_BYTES,
    SESSION_PATH,
    AgentFrame,
    CloseRequest,
    ErrorReport,
    OpenRequest,
    Ready,
    Refused,
    ReleaseRequest,
    Said,
    SayRequest,
    StopSayingRequest,
    UserFrame,
    check_speech,
    pack_request,
    unpack_reply,
)

__all__ = ["EngineSession", "fetch_stats", "fetch_voices"]

HEARTBEAT_S = 10.0
"""A silent connection is probed this often; without an answer for half of it, it is dead."""
MAX_UNSENT_FRAMES = 25
"""User frames that wait for a stalled connection (2 s); beyond it the oldest are lost."""
MAX_WAITING_TEXTS = 64
"""Texts to say that are not said yet."""
GOODBYE_TIMEOUT_S = 1.5
ABORT_TIMEOUT_S = 0.5


class EngineSession:
    """One conversation with the engine, made by `open`.

    Attributes:
        session_id: The engine's name for it.
        seed: Seed of its sampling: the one asked for, or the one that the engine drew.
        open_ms: How long the engine took to open it.
        prompt_steps: Length of its system prompt.
    """

    def __init__(
        self, http: aiohttp.ClientSession, ws: "aiohttp.ClientWebSocketResponse[bool]", ready: Ready
    ) -> None:
        """Take over an open connection; call it inside a running loop."""
        self.session_id = ready.session
        self.seed = ready.seed
        self.open_ms = ready.open_ms
        self.prompt_steps = ready.prompt_steps
        self._http = http
        self._ws = ws
        self._num_frames = 0
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT_FRAMES)
        self._has_unsent = asyncio.Event()
        self._controls: deque[str] = deque()
        self._sayings: dict[int, asyncio.Future[bool]] = {}
        self._num_sayings = 0
        self._end: PersonaPlexError | None = None
        self._sender = asyncio.create_task(self._send_frames(), name="engine session sender")
        self._goodbye: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        address: EngineAddress,
        request: OpenRequest,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> "EngineSession":
        """Open a conversation; returns once its system prompt is done.

        Args:
            address: Where the engine listens.
            request: Voice, persona, sampling.
            token: Bearer token of an engine on TCP.
            timeout_s: For all of it.

        Raises:
            CapacityError: Every slot is taken.
            ConfigError: Voice, persona, sampling or token cannot be used.
            ProtocolError: The other side does not speak this protocol.
            EngineDiedError: It cannot be reached, or went away.
            EngineError: It does not serve this call, or not in time.
        """
        http = make_http_session(address, token)
        try:
            ws, ready = await asyncio.wait_for(_shake_hands(http, address, request), timeout_s)
        except asyncio.TimeoutError:
            await http.close()
            raise EngineError(
                f"the engine at {address} did not open a session within {timeout_s:g} s"
            ) from None
        except BaseException:
            await http.close()
            raise
        return cls(http, ws, ready)

    def send_frame(self, pcm: bytes) -> None:
        """Give the engine the caller's next 80 ms. Never blocks.

        Args:
            pcm: 3,840 bytes of int16 PCM, 24 kHz, mono.

        Raises:
            SessionClosedError: The session is over; `receive` says why.
        """
        assert len(pcm) == FRAME_BYTES, len(pcm)
        if self._end is not None or self._sender.done():
            raise SessionClosedError("this session is over and takes no more frames")
        self._unsent.append(pack_user_frame(UserFrame(self._num_frames, pcm)))
        self._num_frames += 1
        self._has_unsent.set()

    def say(self, text: str) -> "asyncio.Future[bool]":
        """Let the agent say words next, in its own voice and at its pace. Never blocks.

        `receive` has to be called meanwhile, as always.

        Args:
            text: Up to 4,096 bytes of UTF-8. Empty: the agent begins to speak, with words of its
                own.

        Returns:
            Done once the last word is there: True; False when the words were taken back, or the
            session has ended. Raises `ConfigError` when the engine cannot take them, as when too
            much waits to be said. It may be forgotten.

        Raises:
            ConfigError: The text is too long, or too many wait.
            SessionClosedError: The session is over; `receive` says why.
        """
        check_speech(text, name="a text to say")
        if len(self._sayings) >= MAX_WAITING_TEXTS:
            raise ConfigError(f"{MAX_WAITING_TEXTS} texts wait to be said; wait for one of them")
        self._send_control(pack_request(SayRequest(self._num_sayings, text)))
        saying: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        saying.add_done_callback(_mark_as_seen)
        self._sayings[self._num_sayings] = saying
        self._num_sayings += 1
        return saying

    def stop_saying(self) -> None:
        """Take back the words that are given and not said yet, the greeting's too. Never blocks.

        Raises:
            SessionClosedError: The session is over; `receive` says why.
        """
        self._send_control(pack_request(StopSayingRequest()))

    def release(self) -> None:
        """Let an agent speak that was opened with the caller as the first speaker. Never blocks.

        Raises:
            SessionClosedError: The session is over; `receive` says why.
        """
        self._send_control(pack_request(ReleaseRequest()))

    async def receive(self) -> AgentFrame:
        """Wait for the agent's next frame. One caller at a time; safe to cancel.

        Raises:
            SessionClosedError: `aclose` was called, or the engine ended the session with a goodbye.
            EngineDiedError: The engine failed, or vanished without a goodbye.
            ProtocolError: The engine, or this client in the engine's view, broke the protocol.
            EngineError: The engine ended this session for a reason of its own.
        """
        while self._end is None:
            message = await self._ws.receive()
            try:
                if message.type is WSMsgType.BINARY:
                    return unpack_agent_frame(message.data)
                if self._take_answer(message.type, message.data):
                    continue
                end = _end_told_by(message.type, message.data)
            except ProtocolError as error:
                end = error
            if self._end is None:
                self._end = end
                self._start_goodbye(says_close=False)
        raise self._end

    def _take_answer(self, kind: WSMsgType, data: str) -> bool:
        """Whether a message is the answer to a `say`; then that is told."""
        reply = unpack_reply(data) if kind is WSMsgType.TEXT else None
        if not isinstance(reply, (Said, Refused)):
            return False
        saying = self._sayings.pop(reply.number, None)
        if saying is None:
            raise ProtocolError("the engine answers a say that it was not told")
        if not saying.done():  # its owner may have cancelled it
            if isinstance(reply, Said):
                saying.set_result(reply.complete)
            else:
                saying.set_exception(ConfigError(reply.message))
        return True

    def _send_control(self, message: str) -> None:
        if self._end is not None or self._sender.done():
            raise SessionClosedError("this session is over")
        self._controls.append(message)
        self._has_unsent.set()

    async def aclose(self) -> None:
        """End the session; the slot is free when this returns, unless the engine hangs.

        Idempotent, from any task; takes less than 2 s. A waiting `receive` raises.
        """
        if self._end is None:
            self._end = SessionClosedError("this session was closed")
            self._start_goodbye(says_close=True)
        assert self._goodbye is not None
        await asyncio.shield(self._goodbye)

    def _start_goodbye(self, *, says_close: bool) -> None:
        self._sender.cancel()
        for saying in self._sayings.values():
            if not saying.done():
                saying.set_result(False)
        self._sayings.clear()
        self._goodbye = asyncio.create_task(
            self._say_goodbye(says_close), name="engine session goodbye"
        )

    async def _say_goodbye(self, says_close: bool) -> None:
        try:
            await asyncio.wait_for(self._close_connection(says_close), GOODBYE_TIMEOUT_S)
        except (asyncio.TimeoutError, ConnectionError, aiohttp.ClientError):
            pass  # the engine sees the connection end and frees the slot by itself
        finally:
            await self._http.close()

    async def _close_connection(self, says_close: bool) -> None:
        if says_close:
            await self._ws.send_str(pack_request(CloseRequest()))
        await self._ws.close()

    async def _send_frames(self) -> None:
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            while self._controls or self._unsent:
                try:
                    if self._controls:
                        await self._ws.send_str(self._controls.popleft())
                    else:
                        await self._ws.send_bytes(self._unsent.popleft())
                except (ConnectionError, aiohttp.ClientError):
                    return  # `receive` finds the end and its reason


async def _shake_hands(
    http: aiohttp.ClientSession, address: EngineAddress, request: OpenRequest
) -> "tuple[aiohttp.ClientWebSocketResponse[bool], Ready]":
    async with engine_errors(address):
        ws = await http.ws_connect(
            address.url(SESSION_PATH), heartbeat=HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES
        )
        try:
            await ws.send_str(pack_request(request))
            message = await ws.receive()
            if message.type is WSMsgType.TEXT:
                reply = unpack_reply(message.data)
                if isinstance(reply, Ready):
                    return ws, reply
            raise _end_told_by(message.type, message.data)
        except BaseException:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ws.close(), ABORT_TIMEOUT_S)
            raise


def _mark_as_seen(saying: "asyncio.Future[bool]") -> None:
    """Keep asyncio from complaining about a refusal that nobody waits for."""
    if not saying.cancelled():
        saying.exception()


def _end_told_by(kind: WSMsgType, data: str) -> PersonaPlexError:
    if kind is WSMsgType.TEXT:
        reply = unpack_reply(data)
        if isinstance(reply, ErrorReport):
            return error_from_report(reply)
        if isinstance(reply, Ready):
            return ProtocolError("the engine said ready twice")
        if isinstance(reply, (Said, Refused)):
            return ProtocolError("the engine answered a say before it said ready")
        return SessionClosedError("the engine closed this session")
    if kind is WSMsgType.BINARY:
        return ProtocolError("the engine sent audio before it said ready")
    return EngineDiedError("the connection to the engine ended without a goodbye")
