"""When the model hears its next frame, and what is in it: the caller's audio, or silence.

Pure arithmetic on a clock that is handed in; whoever takes a caller's audio runs it on asyncio
timers: the plugin's `listener.py`, and the engine for callers of NVIDIA's protocol.

The model lives in frames of 80 ms, so time passes for it only as frames are sent. Callers are heard
late, in pieces of any length, or not at all (muted, unpublished, gone, not yet there). Two rules:

* A frame is sent as soon as its 1,920 samples are there. If they are not one frame and a grace
  period after the last, the frame is completed with silence.
* The model is never fed ahead of time by more than that grace. Audio that comes after silence has
  taken its place, or in a heap after the process was stuck, loses its oldest part.

So no audio waits here longer than for the rest of its frame, whatever happened before.
"""

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ

MIN_GRACE_S = 0.02
"""What event loops and networks are late by in good health."""
MAX_PIECE_S = 0.1
"""Pieces of audio up to this length come regularly; longer ones are exceptions."""
SETTLING = 0.02
"""Audio that was late, and a sound card that runs fast, push the model's time ahead of ours. By
this share of every frame it settles back."""


class UserClock:
    """Cuts the caller's audio into the model's frames and keeps them in step with time.

    All times are seconds on one monotonic clock.

    Attributes:
        silence_frames: Frames that were completed with silence, or are nothing else.
        dropped_samples: Samples that the model was never given.
    """

    def __init__(self, *, now_s: float) -> None:
        """Start the model's time now."""
        self.silence_frames = 0
        self.dropped_samples = 0
        self._heard_until_s = now_s
        self._pending = np.zeros(0, dtype=np.int16)
        self._grace_s = MIN_GRACE_S
        self._follows_audio = False

    @property
    def deadline_s(self) -> float:
        """When the next frame is due for silence."""
        return self._heard_until_s + FRAME_S + self._grace_s

    def push(self, samples: NDArray[np.int16], *, now_s: float) -> list[NDArray[np.int16]]:
        """Take audio that has just come.

        Args:
            samples: 24 kHz mono, ``[n]``, any length.
            now_s: The time.

        Returns:
            The frames to send now, each ``[1920]``.
        """
        piece_s = len(samples) / SAMPLE_RATE_HZ
        if piece_s > MAX_PIECE_S and not samples.any():
            return []  # how LiveKit ends a track; silence comes by itself, and in time
        self._grace_s = MIN_GRACE_S + (piece_s if piece_s <= MAX_PIECE_S else 0.0)
        self._pending = np.concatenate((self._pending, samples))
        # past the deadline silence should have been sent: that time is not to be had any more
        self._heard_until_s = max(self._heard_until_s, now_s - FRAME_S - self._grace_s)
        self._drop_what_time_has_passed(now_s)
        frames = []
        while len(self._pending) >= FRAME_SAMPLES:
            frames.append(self._pending[:FRAME_SAMPLES])
            self._pending = self._pending[FRAME_SAMPLES:]
            self._heard_until_s += FRAME_S * (1 - SETTLING)
        if frames:
            self._follows_audio = True
            pending_s = len(self._pending) / SAMPLE_RATE_HZ
            self._heard_until_s = max(self._heard_until_s, now_s - pending_s)
        return frames

    def fill(self, *, now_s: float) -> NDArray[np.int16]:
        """Complete the next frame with silence; to be called once `deadline_s` is reached.

        Audio that had stopped keeps its place before the silence; audio that has just begun keeps
        its place after it, so that no hole is cut into what follows.

        Returns:
            The frame to send now, ``[1920]``.
        """
        frame = np.zeros(FRAME_SAMPLES, dtype=np.int16)
        num_pending = len(self._pending)
        has_begun = num_pending > 0 and not self._follows_audio
        first = FRAME_SAMPLES - num_pending if has_begun else 0
        frame[first : first + num_pending] = self._pending
        self._follows_audio = has_begun
        self._pending = self._pending[:0]
        self.silence_frames += 1
        if now_s - self.deadline_s > FRAME_S:
            # this process was stuck: that time is lost to the model rather than made up in a heap
            self._heard_until_s = now_s - self._grace_s
        else:
            self._heard_until_s += FRAME_S
        return frame

    def _drop_what_time_has_passed(self, now_s: float) -> None:
        room_s = now_s - self._heard_until_s + self._grace_s
        num_dropped = len(self._pending) - max(0, round(room_s * SAMPLE_RATE_HZ))
        if num_dropped > 0:
            self.dropped_samples += num_dropped
            self._pending = self._pending[num_dropped:]
