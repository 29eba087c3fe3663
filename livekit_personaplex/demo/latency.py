"""How long a caller's voice takes through a whole call, measured on the audio of the call itself.

The engine's recording says which frame of the caller went into which frame of the agent. Both are
found again, by correlation, in what the caller sent and heard, with the times at which that was.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.demo.alignment import find
from livekit_personaplex.demo.recording import Recording, rms

_MIN_SCORE = 0.3
_MIN_RMS = 0.005
_WINDOW_FRAMES = 6
_LONGEST_DELAY_S = 3.0


@dataclass(frozen=True, slots=True)
class CallAudio:
    """One call seen from the engine.

    Attributes:
        user: ``[N * 1920] int16``; agent frame n+1 is the first that depends on user frame n.
        agent: ``[M * 1920] int16``.
    """

    user: NDArray[np.int16]
    agent: NDArray[np.int16]


def measure_delays_s(
    clip: NDArray[np.int16],
    sent: Recording,
    heard: Recording,
    call: CallAudio,
    *,
    margin_s: float = 3.0,
) -> list[float]:
    """Time from a caller's sample to the first agent sample that can depend on it.

    Measured from the first sample of a frame, so it holds the whole frame that the model waits for.

    Args:
        clip: What the caller said, as it is in ``sent``, once.
        sent: What left the caller's microphone.
        heard: What the caller heard.
        call: The same call in the engine.
        margin_s: How far before and after the clip to measure.

    Returns:
        One delay for every half second in which the agent was loud enough to be found; empty when
        it said nothing then.
    """
    if min(len(sent.samples), len(call.user)) < len(clip):
        return []  # the call ended before the model had heard all of it
    sent_match, user_match = find(clip, sent.samples), find(clip, call.user)
    if user_match.score < _MIN_SCORE:
        return []
    shift = sent_match.sample - user_match.sample
    margin = int(margin_s * SAMPLE_RATE_HZ)
    first = max(0, user_match.sample - margin, -shift) // FRAME_SAMPLES + 1
    end = min(user_match.sample + len(clip) + margin, len(call.user), len(sent.samples) - shift)
    delays_s = []
    for frame in range(first, end // FRAME_SAMPLES, _WINDOW_FRAMES):
        begin = (frame + 1) * FRAME_SAMPLES
        words = call.agent[begin : begin + _WINDOW_FRAMES * FRAME_SAMPLES]
        spoken_s = sent.start_s(frame * FRAME_SAMPLES + shift)
        delay_s = _find_delay_s(words, heard, spoken_s)
        if delay_s is not None:
            delays_s.append(delay_s)
    return delays_s


def _find_delay_s(words: NDArray[np.int16], heard: Recording, spoken_s: float) -> float | None:
    if len(words) < _WINDOW_FRAMES * FRAME_SAMPLES or rms(words) < _MIN_RMS:
        return None
    near = heard.between(spoken_s, spoken_s + _LONGEST_DELAY_S + _WINDOW_FRAMES * FRAME_S)
    if len(near.samples) < len(words):
        return None
    match = find(words, near.samples)
    return near.start_s(match.sample) - spoken_s if match.score >= _MIN_SCORE else None
