"""Who has the first word when it is the caller's: when the agent's silence ends."""

from collections.abc import Callable

from livekit_personaplex.audio import FRAME_S


class FirstWord:
    """Lets the agent speak once the caller has, or has had long enough.

    Without a greeting the model is let go as the caller begins: it knows best when to answer, and
    a model that is let go only afterwards has missed its moment. Given words would be said over the
    caller, so with a greeting it is let go when the caller stops.
    """

    def __init__(self, let_go: Callable[[], None], *, has_greeting: bool, timeout_s: float) -> None:
        """Begin to wait; time passes with `hear`.

        Args:
            let_go: Called once.
            has_greeting: The agent will say given words.
            timeout_s: How long a caller may stay silent.
        """
        self._let_go = let_go
        self._has_greeting = has_greeting
        self._frames_left = max(1, round(timeout_s / FRAME_S))
        self._is_over = False
        self._is_speaking = False

    def hear(self) -> None:
        """Another frame, 80 ms, has been given to the model."""
        self._frames_left -= 1
        if self._frames_left <= 0 and not self._is_speaking:
            self.finish()

    def tell_speech(self, is_speaking: bool) -> None:
        """The caller begins to speak, or stops."""
        self._is_speaking = is_speaking
        if is_speaking != self._has_greeting:
            self.finish()

    def finish(self) -> None:
        """Wait no longer. Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._let_go()
