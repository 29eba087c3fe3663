"""The wire's reference: every message between a call and the engine, version 1.

One WebSocket (``GET /v1/session``) carries one conversation. Text frames are JSON control messages,
binary frames are audio; integers in binary frames are little-endian, PCM is int16, 24 kHz, mono,
1,920 samples (3,840 bytes, 80 ms). On TCP the request carries ``Authorization: Bearer TOKEN``.

Order::

    call                                  engine
    open                        ->                          first message, once
                                <-        ready             the system prompt is done
    user frame 0, 1, 2, ...     ->                          allowed from `open` on
                                <-        agent frame 0     needs no user frame
                                <-        agent frame n+1   one for every user frame that was heard
    say, stop_saying, release   ->                          allowed from `ready` on
                                <-        said, refused     one for every `say`
    close                       ->                          at any time after `open`
                                <-        closed            the slot is free again; then the end
                                <-        error             at any time; then the end

Control messages (unknown, missing and repeated fields are errors; NaN and Infinity are not JSON)::

    {"type": "open", "version": 1, "voice": STR, "persona": STR, "sampling": {...},
     "greeting": STR, "first_speaker": "model" | "agent" | "caller"}
        sampling: any of the fields of `livekit_personaplex.sampling.Sampling`
        greeting: words that the agent begins with; may be left out, or empty
        first_speaker: may be left out
            model   whoever the model decides, if there is no greeting
            agent   the agent begins, with the greeting or with words of its own
            caller  the agent says nothing until `release`; then the greeting, if there is one
    {"type": "say", "id": INT, "text": STR}
        the agent says these words next, in the model's own voice and at its pace, and none else
        until they are said; empty: it begins to speak, with words of its own
    {"type": "stop_saying"}
        words that were given and are not said yet, of all `say` and the greeting, are taken back
    {"type": "release"}
        ends the silence of first_speaker "caller"; without it, it does nothing
    {"type": "said", "id": INT, "complete": BOOL}
        the agent frame before this one carries the last word; false: the words were taken back
    {"type": "refused", "id": INT, "message": STR}
        these words cannot be said; the conversation goes on
    {"type": "close"}
    {"type": "ready", "session": STR, "seed": INT, "prompt_steps": INT, "open_ms": NUMBER}
        seed: the one given, or the one the engine drew; open_ms: from `open` to `ready`
    {"type": "closed", "frames": INT, "dropped": INT}
        agent frames made; user frames that a full backlog pushed out
    {"type": "error", "code": CODE, "message": STR}
        capacity  every slot is taken               config    voice, persona or sampling is unusable
        protocol  a message broke these rules       slow      this client does not read fast enough
        internal  this session failed               engine    the engine failed and is ending
        closing   the engine is shutting down

User frame, 3,848 bytes::

    offset  0  u8   1
            1  u8   0
            2  u16  0
            4  u32  number   the client's count; must grow, gaps mean frames that it never sent
            8       PCM      3,840 bytes

Agent frame, 3,870 bytes and its text::

    offset  0  u8   2
            1  u8   0
            2  u16  text_bytes
            4  u32  step     0, 1, 2, ...
            8  u32  heard    number of the newest user frame this step depends on; 2^32-1 for none
           12  u16  9 tokens: text token, then 8 agent codes
           30       PCM      3,840 bytes
         3870       text     text_bytes of UTF-8: what this step adds to the agent's words

The input backlog is bounded: frames beyond it push out the oldest, which are never heard and show
as gaps in ``heard``. Limits: a message 262,144 bytes (a longer one ends the connection with close
code 1009), a persona 32,768 bytes of UTF-8, a greeting or a text to say 4,096 bytes, all that waits
to be said 512 tokens, a voice's name 128 characters, ``open`` within 10 s of the connection.

Beside it, over plain HTTP: ``GET /health`` (200 ready, 503 not), ``GET /stats`` (`EngineStats` as
JSON), ``GET /metrics`` (the same for Prometheus), ``GET /voices`` (JSON list of names), and
``POST /persona``, the text in UTF-8 (`PersonaLength` as JSON).
"""

from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

from livekit_personaplex.errors import ConfigError, ProtocolError
from livekit_personaplex.sampling import SAMPLING_FIELDS, Sampling
from livekit_personaplex.wire.json_message import JsonMessage, dump_json

VERSION: Final = 1
SESSION_PATH: Final = "/v1/session"
HEALTH_PATH: Final = "/health"
STATS_PATH: Final = "/stats"
METRICS_PATH: Final = "/metrics"
VOICES_PATH: Final = "/voices"
PERSONA_PATH: Final = "/persona"

MAX_MESSAGE_BYTES: Final = 262_144
MAX_PERSONA_BYTES: Final = 32_768
MAX_SPEECH_BYTES: Final = 4_096
MAX_VOICE_CHARS: Final = 128
MAX_ID: Final = 2**53
OPEN_TIMEOUT_S: Final = 10.0

ErrorCode = Literal["capacity", "config", "protocol", "slow", "internal", "engine", "closing"]

FirstSpeaker = Literal["model", "agent", "caller"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRequest:
    """What a call asks for. Raises `ConfigError` when it could not travel or be used."""

    voice: str
    persona: str
    sampling: Sampling
    greeting: str = ""
    first_speaker: FirstSpeaker = "model"

    def __post_init__(self) -> None:
        if self.first_speaker not in get_args(FirstSpeaker):
            raise ConfigError(
                f"first_speaker must be one of {', '.join(get_args(FirstSpeaker))}, got another"
            )
        check_speech(self.greeting, name="greeting")
        if not 0 < len(self.voice) <= MAX_VOICE_CHARS:
            raise ConfigError(
                f"voice must be a name of 1..{MAX_VOICE_CHARS} characters, got {len(self.voice)}"
            )
        try:
            num_bytes = len(self.persona.encode())
            self.voice.encode()
        except UnicodeEncodeError:
            raise ConfigError("voice and persona must be Unicode text, got a surrogate") from None
        if num_bytes > MAX_PERSONA_BYTES:
            raise ConfigError(
                f"persona may take {MAX_PERSONA_BYTES} bytes of UTF-8, got {num_bytes}; shorten it"
            )


@dataclass(frozen=True, slots=True)
class SayRequest:
    """Words that the agent shall say.

    Attributes:
        number: The client's; `Said` or `Refused` repeats it.
        text: Empty: the agent shall begin to speak, with words of its own.
    """

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class StopSayingRequest:
    """Words that are not said yet are taken back."""


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """The caller has had the first word."""


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """The call is over."""


SteeringRequest = SayRequest | StopSayingRequest | ReleaseRequest
Request = OpenRequest | SteeringRequest | CloseRequest


@dataclass(frozen=True, slots=True)
class UserFrame:
    """80 ms of the caller. ``pcm`` is 3,840 bytes; ``number`` counts the client's frames."""

    number: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class AgentFrame:
    """What one step of the conversation gave.

    Attributes:
        step: 0, 1, 2, ... without gaps.
        pcm: 3,840 bytes of int16 PCM.
        text: What this step adds to the agent's words; often empty.
        tokens: Text token, then the agent's 8 codes.
        heard: Number of the newest user frame that this step depends on; None for step 0.
    """

    step: int
    pcm: bytes
    text: str
    tokens: tuple[int, ...]
    heard: int | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The system prompt is done; agent frame 0 follows."""

    session: str
    seed: int
    prompt_steps: int
    open_ms: float


@dataclass(frozen=True, slots=True)
class Said:
    """Words of a `SayRequest` have been said, or, if not ``complete``, taken back."""

    number: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Words of a `SayRequest` cannot be said."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Goodbye: the slot is free again. Counts agent frames made and user frames pushed out."""

    frames: int
    dropped: int


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why the engine ends this session."""

    code: ErrorCode
    message: str


Reply = Ready | Said | Refused | Closed | ErrorReport


def check_speech(text: str, *, name: str) -> None:
    """Raises `ConfigError` when a text that the agent shall say could not travel."""
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{name} must be Unicode text, got a surrogate") from None
    if num_bytes > MAX_SPEECH_BYTES:
        raise ConfigError(
            f"{name} may take {MAX_SPEECH_BYTES} bytes of UTF-8, got {num_bytes}; shorten it"
        )


def pack_request(message: Request) -> str:
    """Pack a control message of a client; of ``open``, what is not set is left out."""
    match message:
        case OpenRequest():
            given = {k: v for k, v in asdict(message.sampling).items() if v is not None}
            fields = {"voice": message.voice, "persona": message.persona, "sampling": given}
            if message.greeting:
                fields["greeting"] = message.greeting
            if message.first_speaker != "model":
                fields["first_speaker"] = message.first_speaker
            return dump_json({"type": "open", "version": VERSION, **fields})
        case SayRequest():
            return dump_json({"type": "say", "id": message.number, "text": message.text})
        case StopSayingRequest():
            return dump_json({"type": "stop_saying"})
        case ReleaseRequest():
            return dump_json({"type": "release"})
        case CloseRequest():
            return dump_json({"type": "close"})


def pack_reply(message: Reply) -> str:
    """Pack a control message of the engine."""
    match message:
        case Said():
            return dump_json({"type": "said", "id": message.number, "complete": message.complete})
        case Refused():
            return dump_json({"type": "refused", "id": message.number, "message": message.message})
        case Ready():
            kind = "ready"
        case Closed():
            kind = "closed"
        case ErrorReport():
            kind = "error"
    return dump_json({"type": kind, **asdict(message)})


def unpack_request(text: str) -> Request:
    """Read a control message of a client.

    Raises:
        ProtocolError: It breaks the protocol.
        ConfigError: It is an ``open`` with a value that cannot be used.
    """
    message = JsonMessage(text)
    kind = message.take_str("type")
    if kind == "open":
        return _unpack_open(message)
    request: Request
    if kind == "say":
        number, words = _take_id(message), message.take_str("text")
        message.finish()
        return SayRequest(number, words)
    if kind == "stop_saying":
        request = StopSayingRequest()
    elif kind == "release":
        request = ReleaseRequest()
    elif kind == "close":
        request = CloseRequest()
    else:
        raise ProtocolError("expected open, say, stop_saying, release or close, got another type")
    message.finish()
    return request


def unpack_reply(text: str) -> Reply:
    """Read a control message of the engine. Raises `ProtocolError`."""
    message = JsonMessage(text)
    kind = message.take_str("type")
    reply: Reply
    if kind == "said":
        reply = Said(_take_id(message), message.take_bool("complete"))
    elif kind == "refused":
        reply = Refused(_take_id(message), message.take_str("message"))
    elif kind == "ready":
        reply = Ready(
            session=message.take_str("session"),
            seed=message.take_int("seed"),
            prompt_steps=message.take_int("prompt_steps"),
            open_ms=message.take_float("open_ms"),
        )
    elif kind == "closed":
        reply = Closed(frames=message.take_int("frames"), dropped=message.take_int("dropped"))
    elif kind == "error":
        reply = ErrorReport(code=_take_code(message), message=message.take_str("message"))
    else:
        raise ProtocolError("expected ready, said, refused, closed or error, got another type")
    message.finish()
    return reply


def _unpack_open(message: JsonMessage) -> OpenRequest:
    version = message.take_int("version")
    if version != VERSION:
        raise ProtocolError(
            f"this engine speaks version {VERSION} of the protocol, got {version}; "
            "install the same livekit-personaplex on both sides"
        )
    voice = message.take_str("voice")
    persona = message.take_str("persona")
    sampling = message.take_dict("sampling")
    greeting = message.take_str("greeting") if "greeting" in message else ""
    first = message.take_str("first_speaker") if "first_speaker" in message else "model"
    message.finish()
    if unknown := sampling.keys() - set(SAMPLING_FIELDS):
        raise ProtocolError(
            f"sampling has {len(unknown)} unknown fields; known are {', '.join(SAMPLING_FIELDS)}"
        )
    return OpenRequest(
        voice=voice,
        persona=persona,
        sampling=Sampling(**sampling),
        greeting=greeting,
        first_speaker=cast(FirstSpeaker, first),  # checked by the request itself
    )


def _take_id(message: JsonMessage) -> int:
    number = message.take_int("id")
    if not 0 <= number <= MAX_ID:
        raise ProtocolError(f"an id must lie in 0..{MAX_ID}, got {number}")
    return number


def _take_code(message: JsonMessage) -> ErrorCode:
    given = message.take_str("code")
    for code in get_args(ErrorCode):
        if given == code:
            return code  # type: ignore[no-any-return]
    raise ProtocolError("an error message carries a code that version 1 does not have")
