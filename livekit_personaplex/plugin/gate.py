"""Which of the model's frames are speech that is played, and which are its own silence.

LiveKit asks a gate for every frame, but sees only the sound. `SpeechGate` knows the model's text
tokens as well and writes its verdict on the frame; `TagGate`, LiveKit's side, reads it there.
"""

from livekit import rtc

from livekit_personaplex.audio import FRAME_MS

SPEECH_TAG = "px.speech"
"""Key of the verdict in ``rtc.AudioFrame.userdata``."""

OPEN_RMS = 0.01
CLOSE_RMS = 0.005
"""Levels for a model whose silence is quiet (-40 and -46 dB of full scale)."""
OPEN_RATIO = 4.0
CLOSE_RATIO = 2.5
"""The same, as multiples of the level of the model's silence, where that is louder."""
LEARN_AFTER_FRAMES = 25
"""Two seconds without a word: what is heard then is how the model's silence sounds."""
LEARN_RATE = 0.1


class SpeechGate:
    """Opens on a word or on sound, closes after enough frames that have neither."""

    def __init__(self, *, min_silence_ms: int) -> None:
        """Start closed.

        Args:
            min_silence_ms: How long it stays open after the last word or sound, so that a pause
                between two sentences does not end an utterance.
        """
        self._hold_frames = max(1, round(min_silence_ms / FRAME_MS))
        self._quiet_frames = 0
        self._wordless_frames = 0
        self._silence_rms = 0.0
        self._is_open = False

    def update(self, *, has_word: bool, rms: float) -> bool:
        """Judge the next frame.

        Args:
            has_word: The frame's text token is part of a word.
            rms: Its level, of full scale.

        Returns:
            True: it is speech, or a pause in it.
        """
        self._wordless_frames = 0 if has_word else self._wordless_frames + 1
        if self._wordless_frames >= LEARN_AFTER_FRAMES:
            self._silence_rms += LEARN_RATE * (rms - self._silence_rms)
        if has_word or rms > self._threshold():
            self._is_open = True
            self._quiet_frames = 0
        elif self._is_open:
            self._quiet_frames += 1
            self._is_open = self._quiet_frames < self._hold_frames
        return self._is_open

    def _threshold(self) -> float:
        if self._is_open:
            return max(CLOSE_RMS, CLOSE_RATIO * self._silence_rms)
        return max(OPEN_RMS, OPEN_RATIO * self._silence_rms)


class TagGate:
    """LiveKit's ``AudioGate``: reads the verdict that the session wrote on the frame."""

    def update(self, frame: rtc.AudioFrame) -> bool:
        """Whether the frame belongs to an open burst of speech."""
        return bool(frame.userdata.get(SPEECH_TAG, False))

    def deactivate(self) -> None:
        """Nothing to do: the verdict on the next frame stands on the next frame."""
