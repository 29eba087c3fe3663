"""What a session counts: usage for LiveKit's metrics, and figures for whoever looks at a call."""

import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from livekit.agents.metrics import RealtimeModelMetrics
from livekit.agents.metrics.base import Metadata

from livekit_personaplex.audio import NUM_CODEBOOKS

NUM_LATENCIES = 750
"""The last minute of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionStats:
    """Figures of one session since it began, as `PersonaPlexSession.stats` gives them.

    Attributes:
        frames_sent: Frames (80 ms) that the model was given.
        frames_received: Frames that came back.
        silence_frames: Frames among those sent that were completed with silence, or are nothing
            else: the caller was muted, gone, not yet there, or late.
        dropped_ms: Sound of the caller that came too late to be heard.
        lost_frames: Frames sent that the engine was too slow to hear.
        unheard_frames: Frames sent that no frame of the agent depends on yet.
        latency_p50_ms: From the last sample of a frame pushed to the agent's next frame received,
            median of the last minute; NaN before the first. The head start comes on top.
        latency_p99_ms: Its 99th percentile.
    """

    frames_sent: int
    frames_received: int
    silence_frames: int
    dropped_ms: float
    lost_frames: int
    unheard_frames: int
    latency_p50_ms: float
    latency_p99_ms: float


@dataclass(slots=True)
class FrameCounts:
    """Follows frames to the engine and back."""

    sent: int = 0
    received: int = 0
    lost: int = 0
    text_tokens: int = 0
    _sent_at_s: deque[float] = field(default_factory=deque)
    _latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LATENCIES))

    @property
    def unheard(self) -> int:
        """Frames sent that no frame received depends on."""
        return len(self._sent_at_s)

    def count_sent(self, *, now_s: float) -> None:
        """Note that user frame number `sent` leaves."""
        self.sent += 1
        self._sent_at_s.append(now_s)

    def count_received(self, *, heard: int | None, has_word: bool, now_s: float) -> None:
        """Note an agent frame.

        Args:
            heard: Number of the newest user frame it depends on.
            has_word: Its text token is part of a word.
            now_s: The time, on the clock of `count_sent`.
        """
        self.received += 1
        self.text_tokens += has_word
        if heard is None:
            return
        num_passed = heard - (self.sent - self.unheard) + 1
        for _ in range(min(num_passed, self.unheard)):
            sent_at_s = self._sent_at_s.popleft()
        if num_passed > 0:
            self.lost += num_passed - 1
            self._latencies_s.append(now_s - sent_at_s)

    def latency_ms(self, percentile: float) -> float:
        """Give a percentile of the latest latencies; NaN before the first."""
        if not self._latencies_s:
            return float("nan")
        return float(np.percentile(np.array(self._latencies_s), percentile)) * 1000


class UsageReporter:
    """Makes LiveKit's usage reports: each tells what came since the one before."""

    def __init__(self, *, label: str, metadata: Metadata, request_id: str, now_s: float) -> None:
        """Begin to count now."""
        self._label = label
        self._metadata = metadata
        self._request_id = request_id
        self._since_s = now_s
        self._sent = 0
        self._received = 0
        self._text_tokens = 0

    def report(self, counts: FrameCounts, *, now_s: float) -> RealtimeModelMetrics:
        """Report the usage since the last report. Audio tokens: eight for every frame."""
        duration_s, self._since_s = now_s - self._since_s, now_s
        heard = (counts.sent - self._sent) * NUM_CODEBOOKS
        spoken = (counts.received - self._received) * NUM_CODEBOOKS
        words = counts.text_tokens - self._text_tokens
        self._sent, self._received = counts.sent, counts.received
        self._text_tokens = counts.text_tokens
        return RealtimeModelMetrics(
            label=self._label,
            request_id=self._request_id,
            timestamp=time.time(),
            session_duration=duration_s,
            input_tokens=heard,
            output_tokens=spoken + words,
            total_tokens=heard + spoken + words,
            input_token_details=RealtimeModelMetrics.InputTokenDetails(audio_tokens=heard),
            output_token_details=RealtimeModelMetrics.OutputTokenDetails(
                text_tokens=words, audio_tokens=spoken
            ),
            metadata=self._metadata,
        )
