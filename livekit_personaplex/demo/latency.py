"""How long a caller's voice takes through a whole call, measured on the audio of the call itself.

The engine's recording says which frame of the caller went into which frame of the agent. Both are
found again, by correlation, in what the caller sent and heard, with the times at which that was.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.recording import Recording

_MIN_SCORE = 0.3
_WINDOW_SAMPLES = 6 * FRAME_SAMPLES


@dataclass(frozen=True, slots=True)
class CallAudio:
    """One call seen from the engine: frames of equal index are 80 ms apart from each other.

    Attributes:
        user: ``[N * 1920] int16``; agent frame n+1 is the first that user frame n is heard in.
        agent: ``[N * 1920] int16``.
    """

    user: NDArray[np.int16]
    agent: NDArray[np.int16]


def measure_delays_s(
    clip: NDArray[np.int16], sent: Recording, heard: Recording, call: CallAudio
) -> list[float]:
    """Time from a caller's sample to the first agent sample that can depend on it.

    Measured for the first sample of a frame, so that it holds the whole frame the model waits for.

    Args:
        clip: What the caller said, as it is in ``sent``.
        sent: What left the caller's microphone.
        heard: What the caller heard.
        call: The same call in the engine.

    Returns:
        One delay for every half second of the clip in which both sides could be found; empty when
        the agent said too little then.
    """
    sent_match = find(clip, sent.samples)
    user_match = find(clip, call.user)
    if user_match.score < _MIN_SCORE:
        return []
    shift = sent_match.sample - user_match.sample
    delays_s = []
    first = -(-user_match.sample // FRAME_SAMPLES)
    last = (user_match.sample + len(clip)) // FRAME_SAMPLES
    for frame in range(first, last, 6):
        begin = (frame + 1) * FRAME_SAMPLES
        words = call.agent[begin : begin + _WINDOW_SAMPLES]
        if len(words) < _WINDOW_SAMPLES or not words.any():
            continue
        spoken_s = sent.start_s(frame * FRAME_SAMPLES + shift)
        around = heard.between(spoken_s, spoken_s + 2.0 + len(words) / SAMPLE_RATE_HZ)
        if len(around.samples) < len(words):
            continue
        match = find(words, around.samples)
        if match.score >= _MIN_SCORE:
            delays_s.append(around.start_s(match.sample) - spoken_s)
    return delays_s
