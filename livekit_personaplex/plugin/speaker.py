"""The session's mouth: turns the model's frames into LiveKit's audio frames and transcript deltas.

Sound and words stand on one time line: frame `k` since the session began is at ``k * 80`` ms. That
is what LiveKit's adapter needs to put words on the speech that carries them:

* a word's delta goes out just before the frame it belongs to, stamped with that frame's time;
* speech that begins without a word (a breath, a laugh) gets an empty delta, an anchor. Without it
  the adapter would anchor the next word to the breath, and take later words for late ones.

The first frame of each stretch of speech is held back a little; all later ones then arrive that
much before they are needed, which is what keeps a late frame from being heard as a gap. A stretch
rises from zero, and the frame that closes the gate is played as well, falling to zero.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from livekit import rtc
from livekit.agents import llm
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.loudness import frame_rms
from livekit_personaplex.plugin.fades import fade_in, fade_out
from livekit_personaplex.plugin.gate import SPEECH_TAG, SpeechGate
from livekit_personaplex.wire.protocol import AgentFrame

WORDLESS_TOKENS = frozenset({0, 1, 2, 3})
"""EPAD, the control tokens and PAD: text tokens that are no part of a word."""
BURST_TIMEOUT_S = 0.8
"""After as long without a frame the adapter ends the speech by itself."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One frame on its way out, and the words that go before it."""

    delta: llm.DuplexOutputTranscriptDelta | None
    frame: llm.DuplexAudioFrame


class Speaker:
    """Plays the model's frames in order. Lives on one event loop; call its methods there."""

    def __init__(
        self,
        *,
        say: Callable[[llm.DuplexOutputTranscriptDelta], None],
        play: Callable[[llm.DuplexAudioFrame], None],
        loop: asyncio.AbstractEventLoop,
        min_silence_ms: int,
        prebuffer_ms: int,
    ) -> None:
        """Make one whose time line stands at 0.

        Args:
            say: Takes a transcript delta.
            play: Takes an audio frame; silence too, marked as such.
            loop: The event loop, whose clock is the time.
            min_silence_ms: How much silence ends a stretch of speech.
            prebuffer_ms: How long its first frame is held back.
        """
        self._say = say
        self._play = play
        self._loop = loop
        self._prebuffer_s = prebuffer_ms / 1000
        self._gate = SpeechGate(min_silence_ms=min_silence_ms)
        self._position_ms = 0
        self._is_open = False
        self._is_played = False
        self._is_first_word = True
        self._last_frame_s: float | None = None
        self._waiting: list[_Step] = []
        self._timer: asyncio.TimerHandle | None = None

    def speak(self, agent_frame: AgentFrame) -> None:
        """Take the model's next frame."""
        self._note_arrival()
        pcm = np.frombuffer(agent_frame.pcm, dtype=np.int16)
        has_word = agent_frame.tokens[0] not in WORDLESS_TOKENS or agent_frame.text != ""
        was_open, was_played = self._is_open, self._is_played
        self._is_open = self._gate.update(has_word=has_word, rms=frame_rms(pcm))
        self._is_played = self._is_open or was_open
        begins = self._is_played and not was_played
        if self._is_open and not was_open:
            pcm = fade_in(pcm)
        elif was_open and not self._is_open:
            pcm = fade_out(pcm)
        step = _Step(self._delta(agent_frame.text, begins), self._audio_frame(pcm))
        self._position_ms += FRAME_MS
        self._waiting.append(step)
        if begins and self._prebuffer_s > 0 and self._timer is None:
            self._timer = self._loop.call_later(self._prebuffer_s, self._release)
        elif self._timer is None:
            self._release()

    def close(self) -> None:
        """Forget what is held back. Idempotent."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _note_arrival(self) -> None:
        now_s = self._loop.time()
        if self._last_frame_s is not None and now_s - self._last_frame_s > BURST_TIMEOUT_S:
            # The adapter has closed its burst meanwhile: speech that goes on is a new stretch to
            # it, and a step on the time line keeps its words from being taken for late ones.
            self._is_open = self._is_played = False
            self._position_ms += FRAME_MS
        self._last_frame_s = now_s

    def _delta(self, text: str, begins: bool) -> llm.DuplexOutputTranscriptDelta | None:
        if begins:
            self._is_first_word = True
        if text and self._is_first_word:
            text = text.lstrip(" ")
            self._is_first_word = text == ""
        if not text and not begins:
            return None
        return llm.DuplexOutputTranscriptDelta(
            text=text, start_ms=self._position_ms, end_ms=self._position_ms + FRAME_MS
        )

    def _audio_frame(self, pcm: NDArray[np.int16]) -> llm.DuplexAudioFrame:
        frame = rtc.AudioFrame(
            pcm.tobytes(), SAMPLE_RATE_HZ, 1, FRAME_SAMPLES, userdata={SPEECH_TAG: self._is_played}
        )
        return llm.DuplexAudioFrame(frame=frame, start_ms=self._position_ms)

    def _release(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            if step.delta is not None:
                self._say(step.delta)
            self._play(step.frame)
