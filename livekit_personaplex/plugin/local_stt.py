"""Captions of the caller without a service: a LiveKit STT that runs on the job's own machine."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process

from livekit import rtc
from livekit.agents import APIConnectOptions, LanguageCode, NotGivenOr, stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.utils import AudioBuffer

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.plugin.waiting_audio import WaitingAudio
from livekit_personaplex.recognizer import MODEL_NAME, RATE_HZ, Reading, find_model, pack_piece
from livekit_personaplex.settings import local_captions_wanted, recognizer_environment

EVENT = stt.SpeechEventType

ANSWER_TIMEOUT_S = 30.0
"""How long a piece of half a second may take: the first one waits for the model to be loaded."""


class LocalSTT(stt.STT[str]):
    """English by a small model on the CPU: rough, free, and good enough to follow a call by.

    Each stream has a process of its own, of low priority: a call never waits for its words, and
    outlives their end.
    """

    def __init__(self) -> None:
        """Make one; starts nothing.

        Raises:
            ConfigError: The recogniser's package is not installed.
        """
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        find_model()

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
        return MODEL_NAME

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
        return LocalStream(self, conn_options)


class LocalStream(stt.RecognizeStream):
    """One caller's captions. Closing it ends its process."""

    def __init__(self, owner: LocalSTT, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=owner, conn_options=conn_options, sample_rate=RATE_HZ)
        self._waiting = WaitingAudio(RATE_HZ)
        self._stretch = ""

    async def _run(self) -> None:
        command = (sys.executable, "-m", "livekit_personaplex.recognizer")
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env=recognizer_environment()
        )
        gathering = asyncio.create_task(self._gather(), name="captions input")
        try:
            while (piece := await self._waiting.take()) is not None:
                await self._read(process, piece)
        finally:
            gathering.cancel()
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _gather(self) -> None:
        async for item in self._input_ch:
            if isinstance(item, rtc.AudioFrame):
                self._waiting.push(bytes(item.data))
            else:
                self._waiting.flush()
        self._waiting.finish()

    async def _read(self, process: Process, piece: bytes) -> None:
        """Have one piece read; the next is given only then, so nothing piles up in pipes.

        Raises:
            PersonaPlexError: The process has ended, or hangs.
        """
        assert process.stdin is not None and process.stdout is not None
        heard_s = time.time() - self._waiting.duration_s
        process.stdin.write(pack_piece(piece))
        try:
            while line := await asyncio.wait_for(process.stdout.readline(), ANSWER_TIMEOUT_S):
                if line == b"\n":
                    return
                self._pass_on(Reading.parse(line.decode()), heard_s)
        except asyncio.TimeoutError:
            raise PersonaPlexError(
                f"the recogniser of the caller's words gave no answer for {ANSWER_TIMEOUT_S:g} s, "
                "so it is ended"
            ) from None
        raise PersonaPlexError(
            f"the recogniser of the caller's words ended with status {await process.wait()}; "
            "what it wrote is in this process's own error output"
        )

    def _pass_on(self, reading: Reading, heard_s: float) -> None:
        send = self._event_ch.send_nowait
        if reading.stretch != self._stretch:
            self._stretch = reading.stretch
            began_s = heard_s - reading.began_ago_s
            send(stt.SpeechEvent(EVENT.START_OF_SPEECH, speech_start_time=began_s))
        words = [stt.SpeechData(LanguageCode("en"), reading.text)]
        if not reading.is_final:
            send(stt.SpeechEvent(EVENT.INTERIM_TRANSCRIPT, alternatives=words))
            return
        send(stt.SpeechEvent(EVENT.FINAL_TRANSCRIPT, alternatives=words))
        send(stt.SpeechEvent(EVENT.END_OF_SPEECH))
        usage = stt.RecognitionUsage(audio_duration=reading.duration_s)
        send(stt.SpeechEvent(EVENT.RECOGNITION_USAGE, recognition_usage=usage))
