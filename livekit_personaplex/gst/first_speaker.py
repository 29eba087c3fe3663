"""The caller first: a session that was opened so is let go once the caller has spoken."""

from collections.abc import Callable

import numpy as np

from livekit_personaplex.first_word import FirstWord
from livekit_personaplex.loudness import frame_rms
from livekit_personaplex.user_speech import UserSpeech


class CallerFirst:
    """Listens to what the model hears; for one thread."""

    def __init__(self, let_go: Callable[[], None], *, has_greeting: bool, timeout_s: float) -> None:
        """Begin to wait.

        Args:
            let_go: Called once, by `hear`; must not block.
            has_greeting: The agent will say given words, which wait for the caller's end.
            timeout_s: How long a caller may stay silent.
        """
        self._speech = UserSpeech()
        self._first_word = FirstWord(let_go, has_greeting=has_greeting, timeout_s=timeout_s)

    def hear(self, pcm: bytes) -> None:
        """Another frame, 3,840 bytes, has been given to the model."""
        if self._speech.update(frame_rms(np.frombuffer(pcm, dtype=np.int16))):
            self._first_word.tell_speech(self._speech.is_speaking)
        self._first_word.hear()
