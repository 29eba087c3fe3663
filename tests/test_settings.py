"""Settings: what the environment may say, and what is refused."""

from pathlib import Path

import pytest

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.settings import EngineEndpoint, EngineSettings
from livekit_personaplex.wire.address import EngineAddress

UNIX = EngineAddress(unix_path="/run/engine.sock")
TCP = EngineAddress(host="10.0.0.2", port=8700)


def test_the_environment_is_read() -> None:
    settings = EngineSettings.from_env(
        {
            "PERSONAPLEX_MODEL": "/models/tiny",
            "PERSONAPLEX_DEVICE": "cpu",
            "PERSONAPLEX_DTYPE": "bfloat16",
            "PERSONAPLEX_SLOTS": "12",
            "PERSONAPLEX_TOKEN": "secret",
            "PERSONAPLEX_VOICES": "/voices",
            "PERSONAPLEX_RECORD": "/recordings",
            "PERSONAPLEX_ENGINE": "unix:/run/other.sock",
            "HOME": "/root",
        }
    )
    assert settings == EngineSettings(
        model="/models/tiny",
        device="cpu",
        dtype="bfloat16",
        slots=12,
        token="secret",
        voices_dir=Path("/voices"),
        record_dir=Path("/recordings"),
    )


def test_given_values_go_before_the_environment_and_none_does_not() -> None:
    environ = {"PERSONAPLEX_SLOTS": "2", "PERSONAPLEX_MODEL": "a"}
    settings = EngineSettings.from_env(environ, slots=3, model=None)
    assert (settings.slots, settings.model) == (3, "a")


@pytest.mark.parametrize(
    ("environ", "given", "dtype"),
    [
        ({}, {}, "bfloat16"),
        ({"PERSONAPLEX_DEVICE": "cpu"}, {}, "float32"),
        ({"PERSONAPLEX_DEVICE": "cpu"}, {"device": "cuda"}, "bfloat16"),
        ({"PERSONAPLEX_DTYPE": "float32"}, {"device": "cuda"}, "float32"),
    ],
)
def test_the_dtype_follows_the_device_unless_it_is_said(
    environ: dict[str, str], given: dict[str, str], dtype: str
) -> None:
    assert EngineSettings.from_env(environ, **given).dtype == dtype


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PERSONAPLEX_SLOTS", "many", "PERSONAPLEX_SLOTS must be a whole number, got 'many'"),
        ("PERSONAPLEX_SLOTS", "-1", "whole number"),
        ("PERSONAPLEX_SLOTS", "0", "slots must be 1 or more"),
        ("PERSONAPLEX_SLOTS", "9" * 5000, "whole number"),
        ("PERSONAPLEX_DEVICE", "tpu", "device must be cuda, cuda:N or cpu, got 'tpu'"),
        ("PERSONAPLEX_DEVICE", "cuda:", "device must be cuda, cuda:N or cpu"),
        ("PERSONAPLEX_DEVICE", "cuda:0,cuda:1", "one engine runs on one device"),
        ("PERSONAPLEX_DTYPE", "int4", "dtype must be one of"),
        ("PERSONAPLEX_SLOT", "4", "unknown environment variables PERSONAPLEX_SLOT; known are"),
    ],
)
def test_what_cannot_be_used_is_said(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineSettings.from_env({name: value})


def test_an_empty_variable_counts_as_not_set() -> None:
    environ = {"PERSONAPLEX_MODEL": "", "PERSONAPLEX_SLOTS": "", "PERSONAPLEX_ENGINE": ""}
    assert EngineSettings.from_env(environ) == EngineSettings()
    assert EngineEndpoint.each_from_env(environ) == []


def test_tcp_needs_a_token_and_a_unix_socket_does_not() -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        EngineSettings(listen=TCP)
    with pytest.raises(ConfigError, match="needs a token"):
        EngineSettings(listen=TCP, token="")
    assert EngineSettings(listen=TCP, token="secret").listen == TCP
    assert EngineSettings(listen=UNIX).token is None


def test_the_token_is_not_printed() -> None:
    assert "secret" not in repr(EngineSettings(token="secret"))
    assert "secret" not in repr(EngineEndpoint(address=TCP, token="secret"))


def test_a_child_gets_our_environment_and_the_token_but_no_setting_beside_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERSONAPLEX_TOKEN", "another")
    monkeypatch.setenv("PERSONAPLEX_VOICES", "/voices")
    monkeypatch.setenv("LANG", "C.UTF-8")
    child = EngineSettings(token="its own").child_environment()
    ours = {name: value for name, value in child.items() if name.startswith("PERSONAPLEX_")}
    assert ours == {"PERSONAPLEX_TOKEN": "its own"} and child["LANG"] == "C.UTF-8"
    assert "PERSONAPLEX_TOKEN" not in EngineSettings().child_environment()


@pytest.mark.parametrize("tick_timeout_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tick_has_a_limit(tick_timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="tick_timeout_s"):
        EngineSettings(tick_timeout_s=tick_timeout_s)


def test_engines_that_run_already_are_named_by_their_addresses() -> None:
    assert EngineEndpoint.each_from_env({}) == []
    environ = {
        "PERSONAPLEX_ENGINE": "10.0.0.2:8700, unix:/run/engine.sock",
        "PERSONAPLEX_TOKEN": "secret",
    }
    assert EngineEndpoint.each_from_env(environ) == [
        EngineEndpoint(address=TCP, token="secret"),
        EngineEndpoint(address=UNIX, token="secret"),
    ]
    with pytest.raises(ConfigError, match="an engine's address is"):
        EngineEndpoint.each_from_env({"PERSONAPLEX_ENGINE": "unix:/run/engine.sock,somewhere"})


def test_each_device_named_gets_an_engine_of_the_same_settings() -> None:
    environ = {"PERSONAPLEX_DEVICE": "cuda:1, cuda:3,cpu", "PERSONAPLEX_SLOTS": "8"}
    each = EngineSettings.each_from_env(environ)
    assert [(one.device, one.dtype, one.slots) for one in each] == [
        ("cuda:1", "bfloat16", 8),
        ("cuda:3", "bfloat16", 8),
        ("cpu", "float32", 8),
    ]
    assert EngineSettings.each_from_env({}) == [EngineSettings()]


@pytest.mark.parametrize("devices", ["cuda:1,cuda:1", "cuda,cuda:0", "cuda,cuda"])
def test_a_gpu_is_named_once(devices: str) -> None:
    with pytest.raises(ConfigError, match="name each GPU once"):
        EngineSettings.each_from_env({"PERSONAPLEX_DEVICE": devices})
