"""Captions: what is shown when, and that any words make a file that players read."""

import re

from livekit_personaplex.offline.captions import make_cues, write_webvtt

CUE = re.compile(r"(\d\d:\d\d:\d\d\.\d{3}) --> (\d\d:\d\d:\d\d\.\d{3})\n<v Agent>([^\n]*)</v>\n")


def words(text: str, *, start_ms: int = 0, step_ms: int = 160) -> list[tuple[int, str]]:
    pieces = re.findall(r"\s*\S+", text)
    return [(start_ms + index * step_ms, piece) for index, piece in enumerate(pieces)]


def test_a_sentence_a_pause_and_a_full_line_end_a_cue() -> None:
    first = words("Hello there. How are you?")
    later = words(" " + "word " * 40, start_ms=5_000)
    cues = make_cues(first + later)
    assert [cue.text for cue in cues[:2]] == ["Hello there.", " How are you?"]
    assert cues[2].start_ms == 5_000
    assert all(len(cue.text) <= 72 for cue in cues) and len(cues) > 4
    assert "".join(cue.text for cue in cues) == "".join(text for _, text in first + later)


def test_a_word_in_pieces_is_never_broken() -> None:
    pieces = [(index * 80, " long" if index == 0 else "er") for index in range(60)]
    assert len(make_cues(pieces)) == 1


def test_cues_come_in_order_and_do_not_overlap() -> None:
    spoken = words("One two. Three four! Five?", step_ms=80) + words(" Six.", start_ms=3_700_000)
    found = CUE.findall(write_webvtt(spoken))
    assert [text for _, _, text in found] == ["One two.", "Three four!", "Five?", "Six."]
    assert found[3][0] == "01:01:40.000"
    times = [time for start, end, _ in found for time in (start, end)]
    assert times == sorted(times)
    assert all(start < end for start, end, _ in found)


def test_markup_control_characters_and_arrows_cannot_break_the_file() -> None:
    written = write_webvtt(
        [(0, "<b>a & b\n\nWEBVTT\x11 --> \u2028c</b>"), (5_000, "\n"), (9_000, " ")]
    )
    assert written.startswith("WEBVTT\n\n")
    (cue,) = CUE.findall(written)
    assert cue[2] == "&lt;b&gt;a &amp; b WEBVTT --&gt; c&lt;/b&gt;"
    assert written.count("\n\n") == 1 and written.count("-->") == 1


def test_nothing_said_is_a_file_without_cues() -> None:
    assert write_webvtt([]) == "WEBVTT\n"
