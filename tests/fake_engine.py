"""An engine without a model: speaks the real wire on a Unix socket, says what a script tells it."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from aiohttp import WSMsgType, web

from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.errors import CapacityError, ConfigError, PersonaPlexError
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.error_reports import report_from_error
from livekit_personaplex.wire.frames import pack_agent_frame, unpack_user_frame
from livekit_personaplex.wire.protocol import (
    SESSION_PATH,
    STATS_PATH,
    VOICES_PATH,
    AgentFrame,
    Closed,
    ErrorReport,
    OpenRequest,
    Ready,
    Refused,
    ReleaseRequest,
    SayRequest,
    StopSayingRequest,
    pack_reply,
    unpack_request,
)
from livekit_personaplex.wire.protocol import (
    Said as SaidReply,
)
from livekit_personaplex.wire.stats import EngineStats, pack_stats, pack_voices

PAD = 3
WORD = 100
SPEECH_RMS = 0.1


@dataclass(frozen=True)
class Said:
    """What the agent says in one frame."""

    text: str = ""
    rms: float = 0.0
    token: int | None = None
    pcm: bytes | None = None

    def frame(self, step: int, heard: int | None) -> AgentFrame:
        wave = np.sin(np.arange(FRAME_SAMPLES) * 2 * math.pi / 48) * self.rms * math.sqrt(2)
        pcm = self.pcm or np.rint(wave * 32767).astype(np.int16).tobytes()
        token = self.token if self.token is not None else WORD if self.text else PAD
        return AgentFrame(step, pcm, self.text, (token, *range(8)), heard)


def words(text: str, *, frames_per_word: int = 4) -> list[Said]:
    """A sentence at the model's pace: a word's text comes with its first frame."""
    said = []
    for word in text.split():
        said.append(Said(f" {word}", SPEECH_RMS))
        said += [Said("", SPEECH_RMS)] * (frames_per_word - 1)
    return said


def silence(num_frames: int, rms: float = 0.0005) -> list[Said]:
    return [Said(rms=rms)] * num_frames


@dataclass
class Conversation:
    """What the engine saw of one session."""

    request: OpenRequest
    heard: list[np.ndarray] = field(default_factory=list)
    heard_at_s: list[float] = field(default_factory=list)
    said_close: bool = False
    texts: list[str] = field(default_factory=list)
    is_held: bool = False
    released_at_frame: int | None = None
    given: list[Said] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def say(self, request: SayRequest) -> None:
        self.texts.append(request.text)
        self.numbers.append(request.number)
        self.given += words(request.text or "Words of my own.")


class FakeEngine:
    """Use as ``async with FakeEngine(folder) as engine``."""

    def __init__(
        self,
        folder: Path,
        *,
        script: Sequence[Said] = (),
        slots: int = 4,
        voices: Sequence[str] = ("NATF2", "NATM1"),
        tick_s: float = 0.0,
        open_s: float = 0.0,
        jitter_s: float = 0.0,
    ) -> None:
        self.address = EngineAddress(unix_path=str(folder / "engine.sock"))
        self.script = list(script)
        self.slots = slots
        self.voices = list(voices)
        self.tick_s = tick_s
        self.open_s = open_s
        self.jitter_s = jitter_s
        self.is_ready = True
        self.is_deaf = False
        self.conversations: list[Conversation] = []
        self.num_refused = 0
        self._live: dict[web.WebSocketResponse, Conversation] = {}
        self._runner: web.AppRunner | None = None

    @property
    def used(self) -> int:
        return len(self._live)

    @property
    def last(self) -> Conversation:
        return self.conversations[-1]

    async def __aenter__(self) -> "FakeEngine":
        app = web.Application()
        app.router.add_get(SESSION_PATH, self._serve)
        app.router.add_get(STATS_PATH, self._stats)
        app.router.add_get(VOICES_PATH, self._voices)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, self.address.unix_path).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        self.kill()
        await self._runner.cleanup()

    def kill(self) -> None:
        """End every connection without a goodbye, as a dying process does."""
        for ws in list(self._live):
            transport = ws._req.transport if ws._req is not None else None
            if transport is not None:
                transport.abort()

    async def fail(self, error: PersonaPlexError) -> None:
        """End every session with an error message."""
        for ws in list(self._live):
            await ws.send_str(pack_reply(report_from_error(error)))
            await ws.close()

    async def send_raw(self, data: bytes) -> None:
        """Send every session bytes that are no agent frame."""
        for ws in list(self._live):
            await ws.send_bytes(data)

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        opened = unpack_request((await ws.receive()).data)
        assert isinstance(opened, OpenRequest)
        await asyncio.sleep(self.open_s)
        if (refusal := self._refusal(opened)) is not None:
            self.num_refused += 1
            await ws.send_str(pack_reply(refusal))
            await ws.close()
            return ws
        conversation = Conversation(opened, is_held=opened.first_speaker == "caller")
        if opened.greeting:
            conversation.given += words(opened.greeting)
        self.conversations.append(conversation)
        self._live[ws] = conversation
        try:
            seed = 77 if opened.sampling.seed is None else opened.sampling.seed
            ready = Ready(f"session-{len(self.conversations)}", seed, 42, 1.5)
            await ws.send_str(pack_reply(ready))
            with contextlib.suppress(ConnectionError):
                await self._converse(ws, conversation)
        finally:
            del self._live[ws]
        return ws

    def _refusal(self, opened: OpenRequest) -> ErrorReport | None:
        if self.used >= self.slots:
            return report_from_error(CapacityError(f"all {self.slots} slots are taken"))
        if opened.voice not in self.voices:
            known = ", ".join(self.voices)
            return report_from_error(ConfigError(f"unknown voice; known are {known}"))
        return None

    async def _converse(self, ws: web.WebSocketResponse, conversation: Conversation) -> None:
        await self._answer(ws, conversation, 0, None)
        async for message in ws:
            if message.type is WSMsgType.TEXT:
                if await self._steer(ws, conversation, message.data):
                    continue
                conversation.said_close = True
                await ws.send_str(pack_reply(Closed(len(conversation.heard) + 1, 0)))
                await ws.close()
                return
            frame = unpack_user_frame(message.data)
            conversation.heard.append(np.frombuffer(frame.pcm, dtype=np.int16))
            conversation.heard_at_s.append(asyncio.get_running_loop().time())
            if self.is_deaf:
                continue
            # every third frame comes late by the jitter, the one after it in half of that
            late_s = self.jitter_s * (0.0, 1.0, 0.5)[len(conversation.heard) % 3]
            if self.tick_s + late_s > 0:
                await asyncio.sleep(self.tick_s + late_s)
            await self._answer(ws, conversation, len(conversation.heard), frame.number)

    async def _steer(
        self, ws: web.WebSocketResponse, conversation: Conversation, text: str
    ) -> bool:
        """Do what a message asks for; False when it is a goodbye."""
        match unpack_request(text):
            case SayRequest() as request if "unspeakable" in request.text:
                await ws.send_str(pack_reply(Refused(request.number, "it cannot be said")))
            case SayRequest() as request:
                conversation.say(request)
            case ReleaseRequest():
                conversation.is_held = False
                conversation.released_at_frame = len(conversation.heard)
            case StopSayingRequest():
                conversation.given.clear()
                await self._tell_said(ws, conversation, complete=False)
            case _:
                return False
        return True

    async def _tell_said(
        self, ws: web.WebSocketResponse, conversation: Conversation, *, complete: bool
    ) -> None:
        for number in conversation.numbers:
            await ws.send_str(pack_reply(SaidReply(number, complete)))
        conversation.numbers.clear()

    async def _answer(
        self, ws: web.WebSocketResponse, conversation: Conversation, step: int, heard: int | None
    ) -> None:
        said = self.script[step] if step < len(self.script) else silence(1)[0]
        if conversation.is_held:
            said = silence(1)[0]
        elif conversation.given:
            said = conversation.given.pop(0)
        await ws.send_bytes(pack_agent_frame(said.frame(step, heard)))
        if not conversation.given:
            await self._tell_said(ws, conversation, complete=True)

    async def _stats(self, request: web.Request) -> web.Response:
        stats = EngineStats(
            ready=self.is_ready,
            slots=self.slots,
            used=self.used,
            ticks=0,
            tick_p50_ms=0.0,
            tick_p99_ms=0.0,
            tick_max_ms=0.0,
            backlog_frames=0,
            dropped_frames=0,
            agent_frames=0,
            opened=len(self.conversations),
            refused=self.num_refused,
            failed=0,
            uptime_s=1.0,
        )
        return web.json_response(text=pack_stats(stats))

    async def _voices(self, request: web.Request) -> web.Response:
        return web.json_response(text=pack_voices(self.voices))
