"""What the demo shows: both sides' words as they come."""

from livekit_personaplex.demo.display import Display


def shown(*words: tuple[str, str]) -> list[str]:
    """The lines that these words make, without the clock in front."""
    written: list[str] = []
    display = Display(written.append)
    for speaker, text in words:
        display.say(speaker, text)
    display.note("end")
    lines = "".join(written).splitlines()
    assert lines.pop() == "end"
    return [line.split(" s  ", 1)[1] for line in lines]


def test_words_of_one_speaker_go_on_the_same_line() -> None:
    assert shown(("agent", "Good"), ("agent", " morn"), ("agent", "ing")) == [
        "agent   Good morning"
    ]


def test_another_speaker_begins_a_new_line() -> None:
    assert shown(("agent", "Good"), ("caller", "Hello?"), ("agent", " morning")) == [
        "agent   Good",
        "caller  Hello?",
        "agent   morning",
    ]


def test_what_is_said_after_a_turn_begins_a_new_line() -> None:
    written: list[str] = []
    display = Display(written.append)
    display.say("agent", "Hello.")
    display.end_turn()
    display.say("agent", "Anyone?")
    assert len("".join(written).splitlines()) == 2


def test_long_speech_is_broken_into_lines() -> None:
    lines = shown(*[("agent", " word")] * 40)
    assert len(lines) > 1
    assert all(len(line) < 100 for line in lines)
    assert sum(line.count("word") for line in lines) == 40


def test_control_characters_of_a_transcript_do_not_reach_the_terminal() -> None:
    assert shown(("agent", "a\x1b[2Jb\nc")) == ["agent   a [2Jb c"]
