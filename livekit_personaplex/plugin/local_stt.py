"""Captions of the caller without a service: a LiveKit STT that runs in the job process itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from livekit import rtc
from livekit.agents import APIConnectOptions, LanguageCode, NotGivenOr, stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.utils import AudioBuffer

from livekit_personaplex.recognizer import RATE_HZ, Reading, SpeechReader, find_model
from livekit_personaplex.settings import keep_recognizer_to_one_thread, local_captions_wanted

EVENT = stt.SpeechEventType


class LocalSTT(stt.STT[str]):
    """English by a small model on the CPU: rough, free, and good enough to follow a call by.

    Decoding has a thread of its own that gives way to the call, so audio never waits for words.
    """

    def __init__(self) -> None:
        """Make one; its model is loaded by each stream, on the stream's thread.

        Raises:
            ConfigError: The recogniser's package is not installed.
        """
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        self._model_folder = find_model()
        keep_recognizer_to_one_thread()
        import_module("moonshine_voice.transcriber")  # here, before there is a call to hold up

    @classmethod
    def from_env(cls) -> "LocalSTT | None":
        """Make one if PERSONAPLEX_CAPTIONS asks for it.

        Raises:
            ConfigError: It asks for something else, or the package is not installed.
        """
        return cls() if local_captions_wanted() else None

    @property
    def model(self) -> str:
        """Name in usage reports."""
        return "moonshine-tiny-en"

    @property
    def provider(self) -> str:
        """Provider in usage reports."""
        return "local"

    async def _recognize_impl(
        self,
        buffer: AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        raise NotImplementedError("LocalSTT streams; use stream()")

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> "LocalStream":
        """Begin to listen, on the running event loop.

        Args:
            language: English whatever is asked for.
            conn_options: Nothing is connected.
        """
        return LocalStream(self, self._model_folder, conn_options)


class LocalStream(stt.RecognizeStream):
    """One caller's captions. Closing it waits for its thread: a fraction of a second at most."""

    def __init__(self, owner: LocalSTT, model: Path, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=owner, conn_options=conn_options, sample_rate=RATE_HZ)
        self._model_folder = model
        self._stretch: int | None = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def tell(reading: Reading) -> None:
            loop.call_soon_threadsafe(self._pass_on, reading)

        reader = SpeechReader(self._model_folder, tell=tell)
        with ThreadPoolExecutor(1, thread_name_prefix="captions") as executor:
            reading = loop.run_in_executor(executor, reader.run)
            feeding = asyncio.create_task(self._feed(reader), name="captions input")
            try:
                await asyncio.wait([reading])
            finally:
                feeding.cancel()
                reader.stop()
                await asyncio.wait([reading])
        reading.result()

    async def _feed(self, reader: SpeechReader) -> None:
        async for item in self._input_ch:
            if isinstance(item, rtc.AudioFrame):
                reader.hear(bytes(item.data))
            else:
                reader.flush()
        reader.finish()

    def _pass_on(self, reading: Reading) -> None:
        send = self._event_ch.send_nowait
        if reading.stretch != self._stretch:
            self._stretch = reading.stretch
            send(stt.SpeechEvent(EVENT.START_OF_SPEECH, speech_start_time=reading.began_s))
        words = [stt.SpeechData(LanguageCode("en"), reading.text)]
        if not reading.is_final:
            send(stt.SpeechEvent(EVENT.INTERIM_TRANSCRIPT, alternatives=words))
            return
        send(stt.SpeechEvent(EVENT.FINAL_TRANSCRIPT, alternatives=words))
        send(stt.SpeechEvent(EVENT.END_OF_SPEECH))
        usage = stt.RecognitionUsage(audio_duration=reading.duration_s)
        send(stt.SpeechEvent(EVENT.RECOGNITION_USAGE, recognition_usage=usage))
