"""An open engine session with an ear and a mouth: user frames go out, agent frames come back.

`Listener` sends a frame every 80 ms, each brings one frame back, `Speaker` plays it. A conversation
ends with `aclose`, or by telling its outlet ``fail`` once; it never just stops.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

from livekit import rtc
from livekit.agents import llm, utils
from livekit.agents.metrics import RealtimeModelMetrics

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.errors import EngineDiedError, EngineError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.plugin.listener import Listener
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.plugin.speaker import WORDLESS_TOKENS, Speaker
from livekit_personaplex.plugin.usage import FrameCounts, SessionStats, UsageReporter
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.protocol import AgentFrame

REPORT_EVERY_FRAMES = 250
"""Usage is reported every 20 s, and when the conversation ends."""
MAX_UNHEARD_FRAMES = 125
"""An engine that has heard nothing of the last 10 s is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlets:
    """Where what a conversation gives goes; called on its event loop.

    Attributes:
        say: Takes the agent's words.
        play: Takes the agent's audio, its silence included.
        hear: Told every frame that the model is given, 3,840 bytes.
        tell_speech: Told True when the caller begins to speak, False when they stop.
        report: Takes usage.
        fail: Told once why the conversation cannot go on.
    """

    say: Callable[[llm.DuplexOutputTranscriptDelta], None]
    play: Callable[[llm.DuplexAudioFrame], None]
    hear: Callable[[bytes], None]
    tell_speech: Callable[[bool], None]
    report: Callable[[RealtimeModelMetrics], None]
    fail: Callable[[Exception], None]


class Conversation:
    """Lives on the event loop that made it; call its methods there."""

    def __init__(
        self,
        engine: EngineSession,
        reporter: UsageReporter,
        outlets: Outlets,
        *,
        options: PersonaPlexOptions,
    ) -> None:
        """Take over an open session. Time stands still for the model until `begin`."""
        self.engine = engine
        self._reporter = reporter
        self._outlets = outlets
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self._counts = FrameCounts()
        self._early: list[AgentFrame] = []
        self._is_over = False
        self._listener = Listener(send=self._send, on_speech=outlets.tell_speech, loop=self._loop)
        self._speaker = Speaker(
            say=outlets.say,
            play=outlets.play,
            loop=self._loop,
            min_silence_ms=options.min_silence_ms,
            prebuffer_ms=options.output_prebuffer_ms,
        )
        self._receiver = asyncio.create_task(self._receive(), name="personaplex receiver")

    @property
    def stats(self) -> SessionStats:
        """Figures of the conversation so far."""
        clock = self._listener.clock
        return SessionStats(
            frames_sent=self._counts.sent,
            frames_received=self._counts.received,
            silence_frames=clock.silence_frames if clock else 0,
            dropped_ms=clock.dropped_samples * 1000 / SAMPLE_RATE_HZ if clock else 0.0,
            lost_frames=self._counts.lost,
            unheard_frames=self._counts.unheard,
            latency_p50_ms=self._counts.latency_ms(50),
            latency_p99_ms=self._counts.latency_ms(99),
        )

    def begin(self, *, heard_s: float = 0.0) -> None:
        """Let the model's time begin, with audio about to be pushed that took `heard_s`.

        Idempotent.
        """
        if self._listener.clock is not None or self._is_over:
            return
        self._listener.start(heard_s=heard_s)
        early, self._early = self._early, []
        for frame in early:
            self._speaker.speak(frame)

    def push(self, frame: rtc.AudioFrame) -> None:
        """Take the caller's audio; before `begin` it is forgotten. Never raises, never blocks."""
        if self._is_over:
            return
        try:
            self._listener.push(frame)
        except Exception as error:
            # LiveKit's audio task would end here, and the call go deaf without a word
            logger.exception("could not take the caller's audio")
            self._end(error)

    async def aclose(self) -> None:
        """End it and free its slot; takes less than 3 s."""
        self._stop()
        await utils.aio.cancel_and_wait(self._receiver)
        await self.engine.aclose()
        duration_s = round(self._loop.time() - self._opened_s, 3)
        logger.info(
            "conversation ended",
            extra={
                "session": self.engine.session_id,
                "duration_s": duration_s,
                **asdict(self.stats),
            },
        )
        self._report()

    def _send(self, pcm: bytes) -> None:
        self._outlets.hear(pcm)
        if self._counts.unheard > MAX_UNHEARD_FRAMES:
            self._end(EngineDiedError("the engine has not heard the caller for 10 s"))
            return
        # once the engine's side has ended, the receiver is about to say why
        with contextlib.suppress(EngineError):
            self.engine.send_frame(pcm)
            self._counts.count_sent(now_s=self._loop.time())

    async def _receive(self) -> None:
        try:
            while True:
                self._take(await self.engine.receive())
        except PersonaPlexError as error:
            self._end(error)
        except Exception as error:
            # a call without a receiver would be mute and never end
            logger.exception("the conversation failed")
            self._end(error)

    def _take(self, frame: AgentFrame) -> None:
        has_word = frame.tokens[0] not in WORDLESS_TOKENS
        self._counts.count_received(heard=frame.heard, has_word=has_word, now_s=self._loop.time())
        if self._is_over:
            return
        if self._listener.clock is None:
            self._early.append(frame)
        else:
            self._speaker.speak(frame)
        if self._counts.received % REPORT_EVERY_FRAMES == 0:
            self._report()

    def _report(self) -> None:
        self._outlets.report(self._reporter.report(self._counts, now_s=self._loop.time()))

    def _end(self, error: Exception) -> None:
        if not self._is_over:
            self._stop()
            self._outlets.fail(error)

    def _stop(self) -> None:
        self._is_over = True
        self._listener.close()
        self._speaker.close()
