"""The agent's frames between the engine and the clock. Plain values, no threads.

A frame that is not there in time is replaced by silence and played one frame later, and with it all
that follow: the agent loses no words, but is later than it could be. Such delay is bounded, and is
given back where the agent is quiet.
"""

from collections import deque

import numpy as np

from livekit_personaplex.wire.protocol import AgentFrame

MAX_WAITING_FRAMES = 4
"""Beyond this the oldest frames are dropped: the answer to what was said 320 ms ago is too late."""
QUIET_RMS = 0.005
"""Below this level (-46 dB of full scale) a wordless frame is the agent's silence."""


class AgentTrack:
    """What the agent said and is yet to be played.

    Attributes:
        num_dropped: Frames that were never played.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.num_dropped = 0
        self._frames: deque[AgentFrame] = deque()
        self._words = ""

    def __len__(self) -> int:
        """Give the number of frames that wait."""
        return len(self._frames)

    def put(self, frame: AgentFrame) -> None:
        """Add the agent's next frame."""
        self._frames.append(frame)
        while len(self._frames) > MAX_WAITING_FRAMES:
            self._drop_oldest()

    def take(self) -> tuple[bytes, str] | None:
        """Give PCM and words of the next frame; None when it is not there.

        While others wait behind it, quiet frames are left out. Words of frames that were dropped
        come with the next one.
        """
        while len(self._frames) > 1 and _is_quiet(self._frames[0]):
            self._drop_oldest()
        if not self._frames:
            return None
        frame = self._frames.popleft()
        words, self._words = self._words + frame.text, ""
        return frame.pcm, words

    def _drop_oldest(self) -> None:
        self._words += self._frames.popleft().text
        self.num_dropped += 1


def _is_quiet(frame: AgentFrame) -> bool:
    if frame.text:
        return False
    samples = np.frombuffer(frame.pcm, dtype="<i2").astype(np.float32) / 32768.0
    return float(np.sqrt(np.mean(np.square(samples)))) < QUIET_RMS
