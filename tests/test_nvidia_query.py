"""What the query of a chat by NVIDIA's protocol means."""

from urllib.parse import parse_qsl

import pytest

from livekit_personaplex.engine.nvidia_query import read_query
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.sampling import MAX_SEED, Sampling

VOICES = ("NATF2", "NATM0", "TINY0.wav")


def test_the_browser_client_gets_what_it_asks_for_and_its_other_knobs_are_ignored() -> None:
    sent = (
        "text_temperature=0.5&text_topk=20&audio_temperature=0.9&audio_topk=200&pad_mult=0"
        "&text_seed=7&audio_seed=8&repetition_penalty_context=64&repetition_penalty=1"
        "&text_prompt=You+are+caf%C3%A9.&voice_prompt=NATF2.pt"
    )
    request = read_query(dict(parse_qsl(sent, keep_blank_values=True)), VOICES)
    assert (request.voice, request.persona) == ("NATF2", "You are café.")
    assert request.sampling == Sampling(
        text_temperature=0.5, text_top_k=20, audio_temperature=0.9, audio_top_k=200, seed=None
    )


@pytest.mark.parametrize("voice", ["NATF2", "NATF2.pt", "TINY0.wav", "TINY0.wav.pt"])
def test_a_voice_may_carry_the_suffix_of_its_file(voice: str) -> None:
    request = read_query({"voice_prompt": voice, "text_prompt": ""}, VOICES)
    assert request.voice == voice.removesuffix(".pt")
    assert (request.persona, request.sampling) == ("", Sampling())


@pytest.mark.parametrize(
    ("seed", "meant"), [("0", 0), ("42", 42), (str(MAX_SEED), MAX_SEED), ("-1", None)]
)
def test_a_seed_is_a_whole_number_or_minus_one_for_a_random_one(
    seed: str, meant: int | None
) -> None:
    assert read_query({"voice_prompt": "NATM0", "seed": seed}, VOICES).sampling.seed == meant


@pytest.mark.parametrize(
    "voice",
    ["", "nova", "natf2", "NATF2.pt.pt", ".pt", "../NATF2.pt", "/etc/passwd", "NATF2.pt/..", "\0"],
)
def test_what_is_no_voice_is_refused_with_the_names_of_all(voice: str) -> None:
    with pytest.raises(ConfigError, match="NATF2, NATM0, TINY0.wav"):
        read_query({"voice_prompt": voice}, VOICES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "abc"),
        ("seed", "-2"),
        ("seed", ""),
        ("seed", "1.0"),
        ("seed", "٤٢"),
        ("seed", str(MAX_SEED + 1)),
        ("seed", "9" * 5_000),
        ("text_topk", "0"),
        ("audio_topk", "many"),
        ("text_temperature", "nan"),
        ("text_temperature", "-0.1"),
        ("audio_temperature", "inf"),
        ("audio_temperature", ""),
    ],
)
def test_a_number_that_cannot_be_used_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.removesuffix("_topk")):
        read_query({"voice_prompt": "NATF2", name: value}, VOICES)
