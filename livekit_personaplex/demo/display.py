"""What a demo shows a person: lines about what happens, and both sides' words as they come."""

import time
from collections.abc import Callable

_COLUMNS = 92


class Display:
    """Writes to a terminal or a file. One thread.

    Args:
        write: Takes text and shows it at once.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._start_s = time.monotonic()
        self._speaker: str | None = None
        self._column = 0

    def note(self, text: str) -> None:
        """Show a line of its own."""
        self._end_line()
        self._write(f"{text}\n")

    def start_clock(self) -> None:
        """From now on, words carry the seconds since this moment."""
        self._start_s = time.monotonic()

    def say(self, speaker: str, text: str) -> None:
        """Show words; they go on the speaker's line while nobody else says anything."""
        shown = "".join(c if c.isprintable() else " " for c in text)
        if speaker != self._speaker or self._column + len(shown) > _COLUMNS:
            self._end_line()
            head = f"{time.monotonic() - self._start_s:6.1f} s  {speaker:<7}"
            self._write(head)
            self._speaker, self._column = speaker, len(head)
            shown = f" {shown.lstrip()}"
        self._write(shown)
        self._column += len(shown)

    def end_turn(self) -> None:
        """The next words, whoever says them, begin a line."""
        self._end_line()

    def _end_line(self) -> None:
        if self._speaker is not None:
            self._write("\n")
        self._speaker, self._column = None, 0
