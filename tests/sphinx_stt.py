"""A recogniser that runs here: PocketSphinx, whose package brings a small English model."""

from livekit import rtc
from livekit.agents import APIConnectOptions, NotGivenOr, stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.utils import AudioBuffer
from pocketsphinx import Decoder, Endpointer  # type: ignore[import-untyped]

RATE_HZ = 16_000
EVENT = stt.SpeechEventType


class SphinxSTT(stt.STT[str]):
    """Decodes on the event loop: slow, and simple enough for a test on virtual time."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))

    @property
    def model(self) -> str:
        return "en-us"

    @property
    def provider(self) -> str:
        return "pocketsphinx"

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
    ) -> "SphinxStream":
        return SphinxStream(stt=self, conn_options=conn_options, sample_rate=RATE_HZ)


class SphinxStream(stt.RecognizeStream):
    async def _run(self) -> None:
        decoder = Decoder(samprate=RATE_HZ, loglevel="FATAL")
        endpointer = Endpointer(sample_rate=RATE_HZ)
        waiting = b""
        async for frame in self._input_ch:
            if not isinstance(frame, rtc.AudioFrame):
                continue
            waiting += bytes(frame.data)
            while len(waiting) >= endpointer.frame_bytes:
                piece, waiting = (
                    waiting[: endpointer.frame_bytes],
                    waiting[endpointer.frame_bytes :],
                )
                self._hear(decoder, endpointer, piece)

    def _hear(self, decoder: Decoder, endpointer: Endpointer, piece: bytes) -> None:
        was_speaking = endpointer.in_speech
        speech = endpointer.process(piece)
        if speech is None:
            return
        if not was_speaking:
            self._event_ch.send_nowait(stt.SpeechEvent(EVENT.START_OF_SPEECH))
            decoder.start_utt()
        decoder.process_raw(speech)
        if endpointer.in_speech:
            self._tell(decoder, EVENT.INTERIM_TRANSCRIPT)
            return
        decoder.end_utt()
        self._tell(decoder, EVENT.FINAL_TRANSCRIPT)
        self._event_ch.send_nowait(stt.SpeechEvent(EVENT.END_OF_SPEECH))
        usage = stt.RecognitionUsage(endpointer.speech_end - endpointer.speech_start)
        self._event_ch.send_nowait(
            stt.SpeechEvent(EVENT.RECOGNITION_USAGE, recognition_usage=usage)
        )

    def _tell(self, decoder: Decoder, kind: stt.SpeechEventType) -> None:
        hypothesis = decoder.hyp()
        if hypothesis is not None:
            best = stt.SpeechData("en", hypothesis.hypstr)
            self._event_ch.send_nowait(stt.SpeechEvent(kind, alternatives=[best]))
