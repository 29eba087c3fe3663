"""A conversation's time: which frame is next, when it is due, what is in it. No threads, no clock.

Frame n of the conversation covers the same 80 ms of both sides. The agent's frame n was decided
from the caller's frames before n, so in each step the agent's frame n is played and the caller's
frame n goes to the engine, which answers with frame n+1. What makes a step due:

* Without a live source: the caller's frame n is complete and the agent's frame n has come. The
  engine sets the pace, never more than one frame is on its way, and nothing is lost.
* With one: the clock says that the caller's frame n must have come. What has not come by then is
  silence, on either side.
"""

from dataclasses import dataclass
from enum import Enum

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.gst.agent_track import AgentTrack
from livekit_personaplex.gst.user_track import (
    MAX_DRIFT_SAMPLES,
    MAX_LIVE_DRIFT_SAMPLES,
    SAMPLE_BYTES,
    UserTrack,
)

NS_PER_S = 1_000_000_000
FRAME_NS = FRAME_SAMPLES * NS_PER_S // SAMPLE_RATE_HZ
GRACE_NS = 20_000_000
"""What threads are late by in good health."""
LIVE_LATENCY_NS = FRAME_NS + GRACE_NS
"""With a live source a frame leaves this long after it began, plus what the source is late: the
engine has the time of one frame to answer."""
MAX_UNPUSHED_FRAMES = 25
"""With one, frames that wait for sinks that play late; beyond it the oldest are dropped."""
MAX_UNPUSHED_NS = MAX_UNPUSHED_FRAMES * FRAME_NS
MAX_BEHIND_FRAMES = 4
"""Time that was missed by more, because the process was stuck, is left out: the engine would drop
such a heap of frames anyway."""


class Pace(Enum):
    """Who says when a step is due."""

    UNKNOWN = "unknown"
    ENGINE = "engine"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Played:
    """What leaves the element for one frame of time.

    Attributes:
        position: Running time in samples.
        pcm: int16 samples; fewer than a frame's where the caller's audio ended.
        words: What the agent's words grow by.
        is_filler: Silence, because the agent's frame was not there in time.
    """

    position: int
    pcm: bytes
    words: str
    is_filler: bool


class Timeline:
    """Both sides of a conversation on one time line.

    Attributes:
        user: The caller's audio.
        agent: The agent's frames.
        pace: Who says when a step is due.
        source_latency_ns: How late a live source's audio comes.
        is_playing: The clock counts.
        has_ended: No more of the caller's audio comes.
        num_played: Frames made so far.
        num_fillers: Those of them that are silence for want of an answer.
        num_skipped: Frames of time that were left out.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.user = UserTrack()
        self.agent = AgentTrack()
        self.pace = Pace.UNKNOWN
        self.source_latency_ns = 0
        self.is_playing = False
        self.has_ended = False
        self.num_played = 0
        self.num_fillers = 0
        self.num_skipped = 0
        self._waits_for_audio = False

    @property
    def is_exhausted(self) -> bool:
        """Whether all that the caller's audio asked for has been played."""
        return self.has_ended and self.user.num_left_samples == 0

    def begin(self, position: int) -> None:
        """Let the first frame begin at `position`, or there on the clock's grid; only once."""
        if self.user.start is None:
            is_live = self.pace is Pace.CLOCK
            self.user.start = position - position % FRAME_SAMPLES if is_live else position
            self._waits_for_audio = False

    def hear(self, position: int | None, pcm: bytes, *, is_discont: bool) -> None:
        """Take the caller's audio.

        Args:
            position: Its running time in samples; None when it simply goes on.
            pcm: int16 samples.
            is_discont: It does not follow what came before.
        """
        self.begin(position or 0)
        is_live = self.pace is Pace.CLOCK
        max_drift_samples = MAX_LIVE_DRIFT_SAMPLES if is_live else MAX_DRIFT_SAMPLES
        self.user.put(position, pcm, max_drift_samples=0 if is_discont else max_drift_samples)

    def restart(self) -> None:
        """Forget what the caller said and when; the next audio that comes begins anew."""
        self.user.clear()
        self.has_ended = False
        self._waits_for_audio = True

    def due_in_ns(self, now_ns: int | None) -> int | None:
        """Say when the next step is due.

        Args:
            now_ns: Running time; None without a clock.

        Returns:
            0 or less: now; None: not before something happens.
        """
        if self.pace is Pace.ENGINE:
            is_heard = self.user.has_frame or (self.has_ended and not self.is_exhausted)
            return 0 if is_heard and self.agent else None
        if self.pace is Pace.UNKNOWN or not self.is_playing or now_ns is None:
            return None
        if not self._waits_for_audio:
            self.begin(samples_from_ns(now_ns))
        return None if self.user.start is None else self._cut_ns(self.user.start) - now_ns

    def step(self, now_ns: int | None) -> tuple[Played, bytes]:
        """Make the step that is due.

        Returns:
            What is played, and the caller's frame for the engine.
        """
        if self.pace is Pace.CLOCK and now_ns is not None and not self.has_ended:
            self._leave_out_what_was_missed(now_ns)
        position = self.user.start
        assert position is not None
        num_bytes = min(FRAME_SAMPLES, self.user.num_left_samples) * SAMPLE_BYTES
        heard = self.user.take_frame()
        if not self.has_ended:
            num_bytes = len(heard)
        said = self.agent.take()
        pcm, words = said or (bytes(len(heard)), "")
        self.num_played += 1
        self.num_fillers += said is None
        return Played(position, pcm[:num_bytes], words, is_filler=said is None), heard

    def _cut_ns(self, position: int) -> int:
        """Give the running time by which all of the frame at `position` must have come."""
        return ns_from_samples(position) + FRAME_NS + self.source_latency_ns + GRACE_NS

    def _leave_out_what_was_missed(self, now_ns: int) -> None:
        assert self.user.start is not None
        num_missed = (now_ns - self._cut_ns(self.user.start)) // FRAME_NS
        if num_missed >= MAX_BEHIND_FRAMES:
            self.num_skipped += num_missed
            self.user.skip(num_missed)


def ns_from_samples(num_samples: int) -> int:
    """Give the time that samples take, rounded to nanoseconds."""
    return (num_samples * NS_PER_S + SAMPLE_RATE_HZ // 2) // SAMPLE_RATE_HZ


def samples_from_ns(time_ns: int) -> int:
    """Give the samples that a time takes, rounded."""
    return (time_ns * SAMPLE_RATE_HZ + NS_PER_S // 2) // NS_PER_S
