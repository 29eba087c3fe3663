"""The wire's messages: what goes in comes out, and what the protocol does not allow is refused."""

import json
import random
import struct
import traceback

import pytest

from livekit_personaplex.audio import FRAME_BYTES
from livekit_personaplex.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    EngineDiedError,
    EngineError,
    PersonaPlexError,
    ProtocolError,
    SessionClosedError,
)
from livekit_personaplex.sampling import MAX_SEED, Sampling
from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.error_reports import error_from_report, report_from_error
from livekit_personaplex.wire.frames import (
    MAX_NUMBER,
    pack_agent_frame,
    pack_user_frame,
    unpack_agent_frame,
    unpack_user_frame,
)
from livekit_personaplex.wire.histogram import Histogram
from livekit_personaplex.wire.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_PERSONA_BYTES,
    AgentFrame,
    Closed,
    CloseRequest,
    ErrorReport,
    OpenRequest,
    Ready,
    UserFrame,
    pack_reply,
    pack_request,
    unpack_reply,
    unpack_request,
)
from livekit_personaplex.wire.stats import EngineStats, pack_stats, unpack_stats, unpack_voices

PCM = bytes(range(256)) * 15
TOKENS = (31_999, *range(2040, 2048))
OPEN = OpenRequest(voice="NATF2", persona="You are Zoë. 😀", sampling=Sampling(seed=MAX_SEED))
STATS = EngineStats(
    ready=True,
    slots=4,
    used=1,
    ticks=9,
    tick_p50_ms=1.5,
    tick_p99_ms=2.5,
    tick_max_ms=3.0,
    backlog_frames=1,
    dropped_frames=2,
    agent_frames=8,
    opened=1,
    refused=0,
    failed=0,
    uptime_s=12.25,
    overruns=1,
    user_frames=10,
    tick_s=Histogram(bounds=(0.01, 0.08), counts=(7, 1, 1), total=0.25),
)


def open_message(**changes: object) -> str:
    """An open message with fields replaced; a field set to `...` is left out."""
    fields = {**json.loads(pack_request(OPEN)), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...})


@pytest.mark.parametrize(
    "request_",
    [OPEN, CloseRequest(), OpenRequest(voice="V", persona="", sampling=Sampling(greedy=True))],
)
def test_requests_round_trip(request_: OpenRequest | CloseRequest) -> None:
    assert unpack_request(pack_request(request_)) == request_


@pytest.mark.parametrize(
    "reply", [Ready("a1", 7, 99, 12.5), Closed(10, 2), ErrorReport("slow", "read faster")]
)
def test_replies_round_trip(reply: Ready | Closed | ErrorReport) -> None:
    assert unpack_reply(pack_reply(reply)) == reply


@pytest.mark.parametrize("number", [0, 1, MAX_NUMBER])
def test_user_frames_round_trip(number: int) -> None:
    data = pack_user_frame(UserFrame(number, PCM))
    assert len(data) == 3848
    assert unpack_user_frame(data) == UserFrame(number, PCM)


@pytest.mark.parametrize("heard", [None, 0, MAX_NUMBER])
@pytest.mark.parametrize("text", ["", " Zoë", "😀" * 1000])
def test_agent_frames_round_trip(text: str, heard: int | None) -> None:
    frame = AgentFrame(5, PCM, text, TOKENS, heard)
    data = pack_agent_frame(frame)
    assert len(data) == 3870 + len(text.encode())
    assert unpack_agent_frame(data) == frame


def test_binary_frames_lie_as_the_reference_says() -> None:
    assert pack_user_frame(UserFrame(2, PCM)) == struct.pack("<BBHI", 1, 0, 0, 2) + PCM
    header = struct.pack("<BBHII9H", 2, 0, 2, 5, 4, *TOKENS)
    assert pack_agent_frame(AgentFrame(5, PCM, "ë", TOKENS, 4)) == header + PCM + "ë".encode()


def test_the_longest_persona_fits_into_a_message_however_it_is_escaped() -> None:
    request = OpenRequest(voice="V", persona="\0" * MAX_PERSONA_BYTES, sampling=Sampling())
    text = pack_request(request)
    assert len(text.encode()) < MAX_MESSAGE_BYTES
    assert unpack_request(text) == request


def test_a_sampling_without_fields_is_the_default_one() -> None:
    request = unpack_request(open_message(sampling={}))
    assert isinstance(request, OpenRequest) and request.sampling == Sampling()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "open",
        "[]",
        "null",
        "{}",
        '{"type": 1}',
        '{"type": "ready"}',
        '{"type": "close", "why": "bored"}',
        '{"type": "close", "type": "close"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 100_000,
        open_message(version="1"),
        open_message(version=True),
        open_message(version=1.0),
        open_message(version=...),
        open_message(voice=3),
        open_message(voice=None),
        open_message(persona=["You"]),
        open_message(persona=...),
        open_message(sampling=None),
        open_message(sampling={"tempo": 1}),
        open_message(hurry=True),
        open_message(sampling={"seed": float("nan")}),
        open_message(sampling={"text_temperature": float("inf")}),
        open_message(sampling={"text_temperature": 10**400}),
    ],
)
def test_requests_that_break_the_protocol_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_request(text)


def test_another_version_is_told_both_versions() -> None:
    with pytest.raises(ProtocolError, match="speaks version 1 of the protocol, got 2"):
        unpack_request(open_message(version=2))


@pytest.mark.parametrize(
    "changes",
    [
        {"voice": ""},
        {"voice": "V" * 129},
        {"voice": "\ud800"},
        {"persona": "\udfff"},
        {"persona": "ë" * (MAX_PERSONA_BYTES // 2 + 1)},
        {"sampling": {"seed": -1}},
        {"sampling": {"seed": 2**63}},
        {"sampling": {"seed": "1"}},
        {"sampling": {"text_temperature": -0.1}},
        {"sampling": {"audio_temperature": 1e999}},
        {"sampling": {"audio_top_k": 0}},
        {"sampling": {"greedy": 1}},
    ],
)
def test_values_that_cannot_be_used_are_a_matter_of_configuration(changes: dict) -> None:
    text = open_message(**changes).replace("Infinity", "1e999")
    with pytest.raises(ConfigError):
        unpack_request(text)


def test_a_refusal_repeats_nothing_of_what_was_said() -> None:
    secret = "my name is Zoe"
    for text in (secret, open_message(persona=[secret]), open_message(**{secret: 1})):
        with pytest.raises(ProtocolError) as caught:
            unpack_request(text)
        assert secret not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"open"}',
        '{"type":"ready","session":"a","seed":1,"prompt_steps":2}',
        '{"type":"ready","session":"a","seed":1,"prompt_steps":2,"open_ms":"3"}',
        '{"type":"ready","session":"a","seed":1,"prompt_steps":2,"open_ms":1e999}',
        '{"type":"closed","frames":1.5,"dropped":0}',
        '{"type":"error","code":"tired","message":""}',
    ],
)
def test_replies_that_break_the_protocol_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_reply(text)


USER_DATA = pack_user_frame(UserFrame(0, PCM))
AGENT_DATA = pack_agent_frame(AgentFrame(0, PCM, "hi", TOKENS))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        USER_DATA[:-1],
        USER_DATA + b"\0",
        b"\2" + USER_DATA[1:],
        b"\1\1" + USER_DATA[2:],
        b"\1\0\1\0" + USER_DATA[4:],
        b"\1\0\0\0\xff\xff\xff\xff" + PCM,
        AGENT_DATA,
    ],
)
def test_user_frames_that_break_the_protocol_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_user_frame(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        USER_DATA,
        AGENT_DATA[:3869],
        AGENT_DATA[:-1],
        AGENT_DATA + b"!",
        b"\1" + AGENT_DATA[1:],
        b"\2\1" + AGENT_DATA[2:],
        AGENT_DATA[:-2] + b"\xff\xff",
    ],
)
def test_agent_frames_that_break_the_protocol_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_agent_frame(data)


def test_frames_of_a_wrong_size_are_not_packed() -> None:
    with pytest.raises(ProtocolError, match=f"{FRAME_BYTES} bytes of PCM, got 3"):
        pack_user_frame(UserFrame(0, b"123"))
    with pytest.raises(ProtocolError, match="9 tokens, got 8"):
        pack_agent_frame(AgentFrame(0, PCM, "", TOKENS[:8]))


def test_ten_thousand_damaged_messages_raise_nothing_but_our_errors() -> None:
    dice = random.Random(3)
    texts = [pack_request(OPEN), pack_reply(Ready("a", 1, 2, 3.0)), pack_stats(STATS)]
    for _ in range(10_000):
        text = bytearray(dice.choice(texts).encode())
        for _ in range(dice.randrange(1, 5)):
            text[dice.randrange(len(text))] = dice.randrange(256)
        cut = text[: dice.randrange(len(text))] if dice.random() < 0.3 else text
        for unpack in (unpack_request, unpack_reply, unpack_stats, unpack_voices):
            try:
                unpack(cut.decode(errors="surrogateescape"))
            except (ProtocolError, ConfigError):
                pass
        for unpack_bytes in (unpack_user_frame, unpack_agent_frame):
            with pytest.raises(ProtocolError):
                unpack_bytes(bytes(cut))


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (CapacityError("full"), "capacity", CapacityError),
        (ConfigError("voice"), "config", ConfigError),
        (ProtocolError("order"), "protocol", ProtocolError),
        (EngineDiedError("hangs"), "engine", EngineDiedError),
        (SessionClosedError("stops"), "closing", SessionClosedError),
        (EngineError("bug"), "internal", EngineError),
        (CheckpointError("files"), "internal", EngineError),
    ],
)
def test_an_error_crosses_the_wire_as_itself(
    error: PersonaPlexError, code: str, kind: type[PersonaPlexError]
) -> None:
    report = report_from_error(error)
    assert report.code == code
    received = error_from_report(report)
    assert type(received) is kind and str(received) == str(error)


def test_counters_round_trip_and_those_of_a_newer_engine_are_ignored() -> None:
    assert unpack_stats(pack_stats(STATS)) == STATS
    newer = {**json.loads(pack_stats(STATS)), "moods": 3}
    assert unpack_stats(json.dumps(newer)) == STATS


@pytest.mark.parametrize(
    "histogram",
    [
        3,
        {},
        {"bounds": [0.1], "counts": [1], "total": 0.0},
        {"bounds": [0.2, 0.1], "counts": [1, 1, 1], "total": 0.0},
        {"bounds": ["a"], "counts": [1, 1], "total": 0.0},
        {"bounds": 1, "counts": None, "total": 0.0},
        {"bounds": [0.1], "counts": [10**400, 1], "total": 0.0},
    ],
)
def test_a_histogram_that_is_none_is_refused(histogram: object) -> None:
    broken = {**json.loads(pack_stats(STATS)), "tick_s": histogram}
    with pytest.raises(ProtocolError):
        unpack_stats(json.dumps(broken))


@pytest.mark.parametrize("text", ["{}", '["a", 1]', "nothing"])
def test_a_list_of_voices_is_a_list_of_names(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_voices(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/a b.sock", EngineAddress(unix_path="/run/a b.sock")),
        ("localhost:8700", EngineAddress(host="localhost", port=8700)),
        ("http://10.0.0.2:1/", EngineAddress(host="10.0.0.2", port=1)),
        ("[::1]:0", EngineAddress(host="::1", port=0)),
    ],
)
def test_addresses_parse_and_print_to_what_parses_again(text: str, address: EngineAddress) -> None:
    assert EngineAddress.parse(text) == address
    assert EngineAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "unix:", "unix:a\0b", f"unix:/{'a' * 107}", "localhost", ":80", "host:", "host:70000",
     "host:-1", "host:1²", "host:" + "9" * 5000, "https://host:1", "user@host:1", "http://host/x:1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        EngineAddress.parse(text)
