"""What goes along with a conversation without being in it: captions, watchdogs, the first word.

They hear what the model hears and what the agent says, and change neither; whatever becomes of
them, the conversation goes on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from livekit import rtc
from livekit.agents import llm
from livekit.agents.metrics import STTMetrics

from livekit_personaplex.first_word import FirstWord
from livekit_personaplex.plugin.captions import CallerCaptions
from livekit_personaplex.plugin.gate import SPEECH_TAG
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.plugin.watchdogs import Watch, WatchdogEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class AttendantOutlets:
    """Where what attendants give goes; called on their event loop.

    Attributes:
        release: Lets an agent speak that has waited for the caller.
        transcribe: Takes what the caller says.
        report: Takes the usage of captions.
        miss: Told why there are no captions for a while.
        tell: Takes the events of watchdogs.
    """

    release: Callable[[], None]
    transcribe: Callable[[llm.InputTranscriptionCompleted], None]
    report: Callable[[STTMetrics], None]
    miss: Callable[[Exception], None]
    tell: Callable[[WatchdogEvent], None]


class Attendants:
    """Those of one conversation. They live on the event loop that made them."""

    def __init__(self, options: PersonaPlexOptions, outlets: AttendantOutlets) -> None:
        """Make those that the options ask for."""
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(options.watchdogs, tell=outlets.tell)
        self._captions: CallerCaptions | None = None
        self._first_word: FirstWord | None = None
        if options.user_stt is not None:
            self._captions = CallerCaptions(
                options.user_stt,
                transcribe=outlets.transcribe,
                report=outlets.report,
                miss=outlets.miss,
            )
        if options.first_speaker == "caller":
            self._first_word = FirstWord(
                outlets.release,
                has_greeting=options.greeting != "",
                timeout_s=options.caller_first_timeout_s,
            )

    def note_pushed(self, frame: rtc.AudioFrame, *, is_armed: bool) -> None:
        """LiveKit has delivered audio of the caller."""
        has_sound = bool(np.frombuffer(frame.data, dtype=np.int16).any())
        self._watch.note_pushed(has_sound=has_sound, is_armed=is_armed, now_s=self._loop.time())

    def hear(self, pcm: bytes) -> None:
        """The model is given a frame, 3,840 bytes."""
        has_sound = bool(np.frombuffer(pcm, dtype=np.int16).any())
        self._watch.note_heard(has_sound=has_sound, now_s=self._loop.time())
        if self._captions is not None:
            self._captions.hear(pcm)
        if self._first_word is not None:
            self._first_word.hear()

    def note_caller(self, is_speaking: bool) -> None:
        """The caller begins to speak, or stops."""
        if self._first_word is not None:
            self._first_word.tell_speech(is_speaking)
        if is_speaking and self._captions is not None:
            self._captions.note_speech()

    def stop_waiting(self) -> None:
        """The agent shall speak now, whether or not the caller has. Idempotent."""
        if self._first_word is not None:
            self._first_word.finish()

    def note_agent(self, frame: llm.DuplexAudioFrame) -> None:
        """The agent gives a frame, of speech or of silence."""
        is_speech = bool(frame.frame.userdata[SPEECH_TAG])
        self._watch.note_agent(is_speech=is_speech, now_s=self._loop.time())

    async def aclose(self) -> None:
        """End what runs in the background. Idempotent."""
        if self._captions is not None:
            await self._captions.aclose()
