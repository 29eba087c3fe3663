import asyncio
import json
import math

import pytest

from livekit_personaplex import ConfigError, PersonaPlexModel, Sampling
from livekit_personaplex.plugin.gate import TagGate
from livekit_personaplex.plugin.options import MAX_METADATA_BYTES, PersonaPlexOptions


def test_a_calls_metadata_changes_what_it_names_and_nothing_else() -> None:
    options = PersonaPlexOptions(voice="NATF2", sampling=Sampling(text_top_k=9), min_silence_ms=400)
    changed = options.with_metadata('{"voice": "NATM1", "persona": "You are Bob.", "seed": 7}')
    assert changed.voice == "NATM1"
    assert changed.persona == "You are Bob."
    assert changed.sampling == Sampling(text_top_k=9, seed=7)
    assert changed.min_silence_ms == 400


def test_one_temperature_stands_for_both_unless_one_is_named() -> None:
    given = {"temperature": 0.5, "audio_temperature": 0.9}
    sampling = PersonaPlexOptions().with_metadata(json.dumps(given)).sampling
    assert (sampling.text_temperature, sampling.audio_temperature) == (0.5, 0.9)


@pytest.mark.parametrize("metadata", ["", "  \n", "{}"])
def test_metadata_may_be_empty(metadata: str) -> None:
    assert PersonaPlexOptions(voice="x").with_metadata(metadata) == PersonaPlexOptions(voice="x")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("hello", "must be a JSON object"),
        ("[1, 2]", "must be a JSON object, got a list"),
        ("null", "must be a JSON object, got a NoneType"),
        ("[" * 100_000, "may take"),
        ("[" * 60_000, "must be a JSON object"),
        ('{"seed": ' + "9" * 5_000 + "}", "must be a JSON object"),
        ('{"voice": "' + "x" * MAX_METADATA_BYTES + '"}', "may take"),
        ('{"engine": "unix:/tmp/evil.sock"}', "1 unknown keys; known are voice, persona"),
        ('{"token": "x", "auto_arm": false}', "2 unknown keys"),
        ('{"voice": "../../etc/passwd"}', "looks like a path"),
        ('{"voice": "/etc/passwd"}', "looks like a path"),
        ('{"voice": "..\\\\x"}', "looks like a path"),
        ('{"voice": "a\\u0000b"}', "characters that no name has"),
        ('{"voice": "\\ud800"}', "characters that no name has"),
        ('{"voice": ""}', "1..128 characters"),
        ('{"voice": "' + "x" * 200 + '"}', "1..128 characters"),
        ('{"voice": 3}', "must be a name, got a int"),
        ('{"persona": ["x"]}', "must be text"),
        ('{"persona": "' + "x" * 40_000 + '"}', "32768 bytes"),
        ('{"persona": "\\ud800"}', "Unicode"),
        ('{"seed": -1}', "seed must lie in 0.."),
        ('{"seed": 9223372036854775808}', "seed must lie in 0.."),
        ('{"seed": 1.5}', "seed must be a whole number"),
        ('{"seed": true}', "seed must be a whole number"),
        ('{"temperature": NaN}', "must be a JSON object"),
        ('{"temperature": 1e999}', "finite"),
        ('{"temperature": 1' + "0" * 400 + "}", "must lie in 0.."),
        ('{"temperature": -0.1}', "must lie in 0.."),
        ('{"temperature": "hot"}', "finite number"),
        ('{"text_top_k": 0}', "text_top_k must lie in"),
        ('{"greedy": "yes"}', "greedy must be true or false"),
    ],
    ids=range(31),
)
def test_metadata_that_cannot_be_used_is_refused_with_the_reason(
    metadata: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        PersonaPlexModel().for_call(metadata)


@pytest.mark.parametrize("name", ["seed", "temperature", "text_top_k", "greedy"])
@pytest.mark.parametrize(
    "value", ["x" * 9_000, ["x" * 9_000], 10**400, {"x": ["x"] * 900}], ids=type
)
def test_an_error_repeats_little_of_a_long_value(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        PersonaPlexModel().for_call(json.dumps({name: value}))
    assert len(str(caught.value)) < 200


def test_a_personas_text_is_not_repeated_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        PersonaPlexOptions().with_metadata('{"persona": "my secret", "nonsense": "my secret"}')
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("voice", "a/b"),
        ("persona", "x" * 40_000),
        ("output_prebuffer_ms", -1),
        ("output_prebuffer_ms", 40.5),
        ("min_silence_ms", 0),
        ("engine", "nonsense"),
        ("open_timeout_s", 0.0),
        ("open_timeout_s", math.nan),
        ("sampling", 0.8),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_when_the_model_is_made(
    option: str, value: object
) -> None:
    with pytest.raises(ConfigError):
        PersonaPlexModel(**{option: value})  # type: ignore[arg-type]


def test_a_token_is_not_shown() -> None:
    assert "hush" not in repr(PersonaPlexModel(engine="host:1", token="hush").options)


def test_a_call_has_a_model_of_its_own() -> None:
    async def scenario() -> None:
        shared = PersonaPlexModel(voice="NATF2", auto_arm=False)
        call = shared.for_call('{"voice": "NATM1"}')
        call.arm()
        assert (shared.options.voice, call.options.voice) == ("NATF2", "NATM1")
        assert call.session()._is_armed
        assert not shared.session()._is_armed
        await call.aclose()
        await shared.aclose()
        await shared.aclose()

    asyncio.run(scenario())


def test_each_session_gets_a_gate_that_reads_tags() -> None:
    model = PersonaPlexModel()
    assert isinstance(model.audio_gate(), TagGate)
    assert model.audio_gate() is not model.audio_gate()


def test_the_model_tells_livekit_what_it_cannot_do() -> None:
    capabilities = PersonaPlexModel().capabilities
    assert not capabilities.user_transcription
    assert not capabilities.mutable_instructions
    assert not capabilities.mutable_tools
    assert not capabilities.mutable_chat_context
