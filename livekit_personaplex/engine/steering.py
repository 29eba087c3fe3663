"""What may be asked of a conversation: to say given words, to stop that, to wait, to go on.

Commands are made on any thread and carried out by the core's, between ticks, in order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livekit_personaplex.engine.core_protocol import Core
from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.wire.protocol import (
    OpenRequest,
    ReleaseRequest,
    SayRequest,
    SteeringRequest,
    StopSayingRequest,
    check_speech,
)

if TYPE_CHECKING:  # words are only handed on here
    from livekit_personaplex.model.given_words import GivenWords


@dataclass(frozen=True, slots=True)
class Say:
    """Say words.

    Attributes:
        text: What they are laid out from.
        words: From `Core.prepare_words`.
        number: The client's number, if it wants to know when they are said.
    """

    text: str
    words: "GivenWords"
    number: int | None = None


@dataclass(frozen=True, slots=True)
class StopSaying:
    """Take back what is not said yet."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Release:
    """Be free to speak again."""


Command = Say | StopSaying | Hold | Release


@dataclass(frozen=True, slots=True)
class Steered:
    """A command was carried out after the steps reported so far, and before all others.

    Attributes:
        session_id: Whose.
        command: Which.
        end: Of `Say`: `AgentStep.num_said` of the step that says the last word.
    """

    session_id: str
    command: Command
    end: int = 0


@dataclass(frozen=True, slots=True)
class SayRefused:
    """A conversation cannot be given these words now; it goes on."""

    session_id: str
    command: Say
    error: PersonaPlexError


def opening_commands(core: Core, request: OpenRequest) -> list[Command]:
    """What a conversation is asked before its first step. Any thread.

    Raises:
        ConfigError: The greeting is too long.
    """
    commands: list[Command] = []
    if request.first_speaker == "caller":
        commands.append(Hold())
    if request.greeting or request.first_speaker == "agent":
        commands.append(Say(request.greeting, core.prepare_words(request.greeting)))
    return commands


def command_of(core: Core, request: SteeringRequest) -> Command:
    """Make a client's wish a command. Any thread.

    Raises:
        ConfigError: The words are too many.
    """
    match request:
        case SayRequest():
            check_speech(request.text, name="a text to say")
            return Say(request.text, core.prepare_words(request.text), request.number)
        case StopSayingRequest():
            return StopSaying()
        case ReleaseRequest():
            return Release()


def carry_out(command: Command, core: Core, slot: int) -> int:
    """Do it; on the core's thread, between ticks.

    Returns:
        Of `Say`: `AgentStep.num_said` of the step that says the last word; else 0.

    Raises:
        ConfigError: Too many words wait to be said already.
    """
    match command:
        case Say():
            return core.say(slot, command.words)
        case StopSaying():
            core.stop_saying(slot)
        case Hold():
            core.hold(slot)
        case Release():
            core.release(slot)
    return 0
