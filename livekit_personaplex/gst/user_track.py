"""The caller's audio by its place in time, cut into the model's frames. Plain values, no threads.

Places are running time in samples at 24 kHz. What no audio came for is silence; audio that comes
after its frame was cut is late and not heard.
"""

from collections import deque

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

SAMPLE_BYTES = 2
MAX_DRIFT_SAMPLES = SAMPLE_RATE_HZ * 40 // 1000
"""Timestamps that are off by up to this much are jitter: the audio goes on without a seam. It is
what GStreamer's audio sinks allow (`alignment-threshold`)."""
MAX_LIVE_DRIFT_SAMPLES = SAMPLE_RATE_HZ * 10 // 1000
"""The same for live audio: what is moved ahead of its time comes late for it."""


class UserTrack:
    """What the caller said and is yet to be heard.

    Attributes:
        start: Place of the next frame; None before anything came.
        end: Where the audio that has come ends; None before any came.
        num_late_samples: Samples that came too late to be heard.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.start: int | None = None
        self.end: int | None = None
        self.num_late_samples = 0
        self._pieces: deque[tuple[int, bytes]] = deque()

    @property
    def num_waiting_samples(self) -> int:
        """Samples that wait to be heard; silence between them takes no room."""
        return sum(len(pcm) for _, pcm in self._pieces) // SAMPLE_BYTES

    @property
    def has_frame(self) -> bool:
        """Whether audio or silence has come for the whole of the next frame."""
        return self.num_left_samples >= FRAME_SAMPLES

    @property
    def num_left_samples(self) -> int:
        """Samples from the next frame's begin to where the audio ends."""
        if self.start is None or self.end is None:
            return 0
        return max(0, self.end - self.start)

    def clear(self) -> None:
        """Forget what waits, and all places: whatever comes next begins anew."""
        self.start = self.end = None
        self._pieces.clear()

    def put(
        self, position: int | None, pcm: bytes, *, max_drift_samples: int = MAX_DRIFT_SAMPLES
    ) -> None:
        """Add audio; `start` must be known.

        Args:
            position: Its place; None when it simply goes on.
            pcm: int16 samples.
            max_drift_samples: Its place may be off by this much and it still simply goes on.
        """
        begin = self._place(position, max_drift_samples)
        num_samples = len(pcm) // SAMPLE_BYTES
        assert self.start is not None
        free_from = max(self.start, begin if self.end is None else self.end)
        num_late = min(num_samples, max(0, free_from - begin))
        self.num_late_samples += num_late
        if num_late < num_samples:
            self._pieces.append((begin + num_late, pcm[num_late * SAMPLE_BYTES :]))
        self._extend(begin + num_samples)

    def put_silence(self, position: int, num_samples: int) -> None:
        """Say that there is nothing to hear for a while; `start` must be known."""
        self._extend(position + num_samples)

    def take_frame(self) -> bytes:
        """Cut the next frame, 3,840 bytes; what nothing came for is silence."""
        assert self.start is not None
        frame = bytearray(FRAME_SAMPLES * SAMPLE_BYTES)
        stop = self.start + FRAME_SAMPLES
        while self._pieces and self._pieces[0][0] < stop:
            begin, pcm = self._pieces.popleft()
            num_bytes = min(stop - begin, len(pcm) // SAMPLE_BYTES) * SAMPLE_BYTES
            offset = (begin - self.start) * SAMPLE_BYTES
            frame[offset : offset + num_bytes] = pcm[:num_bytes]
            if num_bytes < len(pcm):
                self._pieces.appendleft((stop, pcm[num_bytes:]))
        self.start = stop
        return bytes(frame)

    def skip(self, num_frames: int) -> None:
        """Leave frames out; what came for them is not heard."""
        assert self.start is not None
        self.start += num_frames * FRAME_SAMPLES
        while self._pieces and self._pieces[0][0] < self.start:
            begin, pcm = self._pieces.popleft()
            num_skipped = min(self.start - begin, len(pcm) // SAMPLE_BYTES)
            self.num_late_samples += num_skipped
            if num_skipped * SAMPLE_BYTES < len(pcm):
                self._pieces.appendleft((self.start, pcm[num_skipped * SAMPLE_BYTES :]))

    def _place(self, position: int | None, max_drift_samples: int) -> int:
        assert self.start is not None
        if position is None:
            return self.start if self.end is None else self.end
        if self.end is None or abs(position - self.end) > max_drift_samples:
            return position
        return self.end

    def _extend(self, end: int) -> None:
        self.end = end if self.end is None else max(self.end, end)
