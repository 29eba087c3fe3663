"""Captions of the agent's words as WebVTT. Pure text."""

from collections.abc import Sequence
from dataclasses import dataclass

from livekit_personaplex.audio import FRAME_MS

MAX_CUE_CHARS = 72
MAX_CUE_MS = 6_000
MAX_PAUSE_MS = 1_000
"""A longer pause between two words ends a cue."""
READING_MS = 800
"""How long the last word of a cue stays, unless the next cue comes before."""
_SENTENCE_ENDS = (".", "!", "?")


@dataclass(slots=True)
class Cue:
    """What is shown at a time."""

    start_ms: int
    last_word_ms: int
    text: str


def make_cues(timed_texts: Sequence[tuple[int, str]]) -> list[Cue]:
    """Gather words into cues, broken between words only.

    Args:
        timed_texts: Milliseconds and what is added to the words then; a piece may be part of a
            word, and one that begins a word begins with a space.
    """
    cues: list[Cue] = []
    for start_ms, piece in timed_texts:
        if not cues or _begins_cue(cues[-1], start_ms, piece):
            cues.append(Cue(start_ms, start_ms, piece))
        else:
            cues[-1].text += piece
            cues[-1].last_word_ms = start_ms
    return [cue for cue in cues if _clean(cue.text)]


def write_webvtt(timed_texts: Sequence[tuple[int, str]]) -> str:
    """Write words as a WebVTT file, in the voice ``Agent``."""
    cues = make_cues(timed_texts)
    blocks = ["WEBVTT\n"]
    for cue, following in zip(cues, [*cues[1:], None], strict=False):
        end_ms = cue.last_word_ms + READING_MS
        if following is not None:
            end_ms = max(cue.last_word_ms + FRAME_MS, min(end_ms, following.start_ms))
        times = f"{_timestamp(cue.start_ms)} --> {_timestamp(end_ms)}"
        blocks.append(f"{times}\n<v Agent>{_escape(_clean(cue.text))}</v>\n")
    return "\n".join(blocks)


def _begins_cue(cue: Cue, start_ms: int, piece: str) -> bool:
    if start_ms - cue.last_word_ms > MAX_PAUSE_MS:
        return True
    if not piece.startswith(" "):
        return False
    is_full = len(cue.text) + len(piece) > MAX_CUE_CHARS or start_ms - cue.start_ms > MAX_CUE_MS
    return is_full or cue.text.rstrip().endswith(_SENTENCE_ENDS)


def _clean(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _timestamp(time_ms: int) -> str:
    seconds, milliseconds = divmod(time_ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"
