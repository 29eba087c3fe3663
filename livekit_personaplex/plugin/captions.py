"""Captions of the caller: a LiveKit STT on the frames that the model hears.

PersonaPlex writes down its own words only. An STT beside it fills in the caller's: into the room as
they are recognised, and into the chat history. Whatever becomes of the STT, the call goes on.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from livekit import rtc
from livekit.agents import llm, stt, utils
from livekit.agents.metrics import STTMetrics
from livekit.agents.metrics.base import Metadata

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.log import logger

RESTART_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Before a stream that failed is started again; the last one for every further time."""

CLOSE_TIMEOUT_S = 1.0
"""How long the end of a call waits for the end of a stream."""

STALE_START_S = 10.0
"""Sound of the caller that became no words within this time was no speech."""


class CallerCaptions:
    """One session's captions. Lives on the event loop that made it."""

    def __init__(
        self,
        recognizer: "stt.STT[Any]",
        *,
        transcribe: Callable[[llm.InputTranscriptionCompleted], None],
        report: Callable[[STTMetrics], None],
        miss: Callable[[Exception], None],
    ) -> None:
        """Begin to listen.

        Args:
            recognizer: One that streams; stays its owner's.
            transcribe: Takes what the caller says.
            report: Takes usage.
            miss: Told why there are no captions for a while.
        """
        self._recognizer = recognizer
        self._transcribe = transcribe
        self._send_report = report
        self._miss = miss
        self._stream: stt.RecognizeStream | None = None
        self._num_failures = 0
        self._is_closed = False
        self._item_id = ""
        self._turn_started_s: float | None = None
        self._task = asyncio.create_task(self._listen(), name="personaplex captions")

    def hear(self, pcm: bytes) -> None:
        """Take 80 ms of the caller, 24 kHz mono int16. Never raises, never blocks."""
        if self._stream is None:
            return
        try:
            self._stream.push_frame(rtc.AudioFrame(pcm, SAMPLE_RATE_HZ, 1, FRAME_SAMPLES))
        except Exception:
            # somebody else's code, on the way of the caller's audio to the model; a stream that has
            # just ended raises here too, and its task is about to say why
            logger.debug("the STT does not take audio", exc_info=True)
            self._stream = None

    def note_speech(self) -> None:
        """The caller begins to speak: an STT that does not say so itself needs it."""
        now_s, began_s = time.time(), self._turn_started_s
        if began_s is None or (not self._item_id and now_s - began_s > STALE_START_S):
            self._turn_started_s = now_s

    async def aclose(self) -> None:
        """Stop listening; takes `CLOSE_TIMEOUT_S` at most. Idempotent."""
        self._is_closed = True
        self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
        if late:  # somebody else's code, which must not keep the call's slot
            logger.warning(
                "the STT does not end its stream; the call ends without it",
                extra={"stt": self._recognizer.label},
            )

    async def _listen(self) -> None:
        while not self._is_closed:
            try:
                async with self._recognizer.stream() as stream:
                    self._stream = stream
                    async for event in stream:
                        self._num_failures = 0
                        self._take(event)
                error: Exception = ConnectionError("the STT has ended its stream")
            except Exception as raised:
                error = raised
            finally:
                self._stream = None
            if self._is_closed:
                return  # it failed as it was closed
            self._miss(error)
            pause_s = RESTART_PAUSES_S[min(self._num_failures, len(RESTART_PAUSES_S) - 1)]
            self._num_failures += 1
            logger.warning(
                "captions of the caller failed; the call goes on",
                extra={"stt": self._recognizer.label, "restart_in_s": pause_s},
                exc_info=error,
            )
            self._begin_turn()
            await asyncio.sleep(pause_s)

    def _take(self, event: stt.SpeechEvent) -> None:
        match event.type:
            case stt.SpeechEventType.START_OF_SPEECH:
                self._turn_started_s = event.speech_start_time or event.created_at
            case stt.SpeechEventType.INTERIM_TRANSCRIPT | stt.SpeechEventType.PREFLIGHT_TRANSCRIPT:
                self._tell(event, is_final=False)
            case stt.SpeechEventType.FINAL_TRANSCRIPT:
                self._tell(event, is_final=True)
            case stt.SpeechEventType.RECOGNITION_USAGE:
                self._report(event)

    def _tell(self, event: stt.SpeechEvent, *, is_final: bool) -> None:
        best = event.alternatives[0] if event.alternatives else None
        text = best.text.strip() if best is not None else ""
        if best is not None and text:
            if not self._item_id:
                self._item_id = utils.shortuuid("item_")
            if self._turn_started_s is None:
                self._turn_started_s = event.speech_start_time or event.created_at
            self._transcribe(
                llm.InputTranscriptionCompleted(
                    item_id=self._item_id,
                    transcript=text,
                    is_final=is_final,
                    confidence=best.confidence or None,
                    turn_started_at=self._turn_started_s,
                )
            )
        if is_final:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._item_id = ""
        self._turn_started_s = None

    def _report(self, event: stt.SpeechEvent) -> None:
        usage = event.recognition_usage
        if usage is None:
            return
        recognizer = self._recognizer
        self._send_report(
            STTMetrics(
                request_id=event.request_id,
                timestamp=time.time(),
                duration=0.0,
                label=recognizer.label,
                audio_duration=usage.audio_duration,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                streamed=True,
                metadata=Metadata(model_name=recognizer.model, model_provider=recognizer.provider),
            )
        )
