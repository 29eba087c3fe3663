"""An STT that knows beforehand what will be said, and when."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from livekit import rtc
from livekit.agents import APIConnectOptions, NotGivenOr, stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.utils import AudioBuffer

KINDS = {
    "start": stt.SpeechEventType.START_OF_SPEECH,
    "interim": stt.SpeechEventType.INTERIM_TRANSCRIPT,
    "final": stt.SpeechEventType.FINAL_TRANSCRIPT,
    "end": stt.SpeechEventType.END_OF_SPEECH,
    "usage": stt.SpeechEventType.RECOGNITION_USAGE,
}


@dataclass(frozen=True)
class Line:
    """An event that comes once a stream has heard `at_s` seconds."""

    at_s: float
    kind: str
    text: str = ""


class FakeSTT(stt.STT[str]):
    """Plays the same lines to every stream.

    Attributes:
        failure: What the streams that run raise.
        closing_s: How long a stream takes to close.
        closing_failure: What it raises then.
    """

    def __init__(self, lines: Sequence[Line], *, streaming: bool = True) -> None:
        super().__init__(
            capabilities=stt.STTCapabilities(streaming=streaming, interim_results=True)
        )
        self.lines = list(lines)
        self.heard_s = 0.0
        self.rates_hz: set[int] = set()
        self.num_streams = 0
        self.failure: Exception | None = None
        self.closing_s = 0.0
        self.closing_failure: Exception | None = None

    async def _recognize_impl(
        self,
        buffer: AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        raise NotImplementedError

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> "FakeStream":
        self.num_streams += 1
        return FakeStream(self, conn_options)


class FakeStream(stt.RecognizeStream):
    def __init__(self, owner: FakeSTT, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=owner, conn_options=conn_options)
        self._owner = owner

    async def _run(self) -> None:
        lines = list(self._owner.lines)
        heard_s = 0.0
        async for frame in self._input_ch:
            if self._owner.failure is not None:
                raise self._owner.failure
            if not isinstance(frame, rtc.AudioFrame):
                continue
            heard_s += frame.duration
            self._owner.heard_s += frame.duration
            self._owner.rates_hz.add(frame.sample_rate)
            while lines and lines[0].at_s <= heard_s:
                self._event_ch.send_nowait(_event(lines.pop(0)))

    async def aclose(self) -> None:
        await asyncio.sleep(self._owner.closing_s)
        await super().aclose()
        if self._owner.closing_failure is not None:
            raise self._owner.closing_failure


def _event(line: Line) -> stt.SpeechEvent:
    usage = stt.RecognitionUsage(audio_duration=1.5) if line.kind == "usage" else None
    text = [stt.SpeechData("en", line.text, confidence=0.75)] if line.text else []
    return stt.SpeechEvent(KINDS[line.kind], alternatives=text, recognition_usage=usage)
