"""Whether the caller is speaking, from the level of the frames that the model hears.

LiveKit shows it as the user's state and keeps its away timer by it. The model does not need it, so
a level with hysteresis is enough, and no detector's weights are loaded for it.
"""

START_RMS = 0.01
START_RATIO = 4.0
STOP_RATIO = 2.0
START_FRAMES = 2
"""160 ms: a click is no speech."""
STOP_FRAMES = 8
"""640 ms: the pause between two words is no end."""
MIN_NOISE_RMS = 0.001
MAX_NOISE_RMS = 0.05
NOISE_FALL = 0.3
NOISE_RISE = 1.01
"""Background noise is followed down in three frames and up to twice its level in six seconds."""


class UserSpeech:
    """Follows the level of the background and tells when speech starts and stops."""

    def __init__(self) -> None:
        self.is_speaking = False
        self._noise_rms = MIN_NOISE_RMS
        self._num_contrary = 0

    def update(self, rms: float) -> bool:
        """Judge the next frame.

        Args:
            rms: Its level, of full scale.

        Returns:
            True: `is_speaking` has just changed.
        """
        self._follow_noise(rms)
        if self.is_speaking:
            is_contrary = rms < max(START_RMS / 2, STOP_RATIO * self._noise_rms)
            needed = STOP_FRAMES
        else:
            is_contrary = rms > max(START_RMS, START_RATIO * self._noise_rms)
            needed = START_FRAMES
        self._num_contrary = self._num_contrary + 1 if is_contrary else 0
        if self._num_contrary < needed:
            return False
        self._num_contrary = 0
        self.is_speaking = not self.is_speaking
        return True

    def _follow_noise(self, rms: float) -> None:
        if rms < self._noise_rms:
            level = self._noise_rms + NOISE_FALL * (rms - self._noise_rms)
        else:
            level = self._noise_rms * NOISE_RISE
        self._noise_rms = min(max(level, MIN_NOISE_RMS), MAX_NOISE_RMS)
