"""A conversation with the engine for threads: the wire's asyncio client on a loop of its own."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from livekit_personaplex.errors import EngineError, PersonaPlexError, SessionClosedError
from livekit_personaplex.log import logger
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.client import EngineSession
from livekit_personaplex.wire.opening import open_on_any
from livekit_personaplex.wire.protocol import AgentFrame, FirstSpeaker


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """What to open.

    Attributes:
        endpoints: Engines that may take the call.
        voice: Name of a voice; None leaves it to the engine.
        persona: Who the agent is.
        sampling: How it draws its tokens.
        greeting: Words that it begins with; empty for none.
        first_speaker: Who has the first word; with the caller's, it is silent until `release`.
        caller_first_timeout_s: How long a caller who has the first word may stay silent.
    """

    endpoints: Sequence[EngineEndpoint]
    voice: str | None
    persona: str
    sampling: Sampling
    greeting: str
    first_speaker: FirstSpeaker
    caller_first_timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Saying:
    """What became of words that an agent was given in mid-call.

    Attributes:
        number: What `EngineCall.say` gave.
        complete: All of them were said.
        reason: Why the engine would not take them; empty when it did.
    """

    number: int
    complete: bool
    reason: str = ""


class EngineCall:
    """One open conversation; its methods may be called from any thread but its own.

    Attributes:
        session: The session behind it, to be read only.
    """

    def __init__(
        self,
        options: CallOptions,
        *,
        on_frame: Callable[[AgentFrame], None],
        on_end: Callable[[PersonaPlexError], None],
        on_said: Callable[[Saying], None],
    ) -> None:
        """Open it; blocks until the system prompt is done.

        Args:
            options: What to open.
            on_frame: Told every frame of the agent, in this call's thread; must not block.
            on_end: Told why it ended, in the same way; not after `close`.
            on_said: Told in the same way what became of each `say`; by `close` too.

        Raises:
            ConfigError: Voice, persona or token cannot be used.
            CapacityError: Every slot is taken.
            EngineError: No engine can be reached, or not in time.
            ProtocolError: Something else listens there.
        """
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_said = on_said
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="personaplex call", daemon=True
        )
        self._thread.start()
        try:
            opening = asyncio.run_coroutine_threadsafe(
                open_on_any(
                    options.endpoints,
                    voice=options.voice,
                    persona=options.persona,
                    sampling=options.sampling,
                    greeting=options.greeting,
                    first_speaker=options.first_speaker,
                ),
                self._loop,
            )
            self.session = opening.result()
        except BaseException:
            self._end_loop()
            raise
        self._receiving = asyncio.run_coroutine_threadsafe(self._receive(), self._loop)

    def send(self, pcm: bytes) -> None:
        """Give the engine the caller's next frame of 3,840 bytes. Never blocks.

        Of a session that is over nothing is said here, but by `on_end`.
        """
        self._loop.call_soon_threadsafe(self._send, pcm)

    def say(self, text: str) -> int:
        """Let the agent say words next; gives their number. Never blocks; `on_said` tells more."""
        number = next(self._numbers)
        self._do(self._say, number, text)
        return number

    def stop_saying(self) -> None:
        """Take back the words that are given and not said yet. Never blocks."""
        self._do(self._tell, EngineSession.stop_saying)

    def release(self) -> None:
        """Let an agent speak that waits for the caller's first word. Never blocks."""
        self._do(self._tell, EngineSession.release)

    def close(self) -> None:
        """End it; takes less than 2 s. Nobody may `send` any more."""
        self._receiving.cancel()
        asyncio.run_coroutine_threadsafe(self.session.aclose(), self._loop).result()
        self._end_loop()

    def _send(self, pcm: bytes) -> None:
        try:
            self.session.send_frame(pcm)
        except SessionClosedError:
            return  # `_receive` finds the end and its reason

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # closed meanwhile, by another thread
            self._loop.call_soon_threadsafe(act, *arguments)

    def _say(self, number: int, text: str) -> None:
        try:
            saying = self.session.say(text)
        except PersonaPlexError as error:
            self._on_said(Saying(number=number, complete=False, reason=str(error)))
        else:
            saying.add_done_callback(partial(self._note_said, number))

    def _note_said(self, number: int, saying: "asyncio.Future[bool]") -> None:
        error = saying.exception()
        if error is None:
            self._on_said(Saying(number=number, complete=saying.result()))
        else:
            self._on_said(Saying(number=number, complete=False, reason=str(error)))

    def _tell(self, control: Callable[[EngineSession], None]) -> None:
        with suppress(SessionClosedError):  # `_receive` finds the end and its reason
            control(self.session)

    async def _receive(self) -> None:
        try:
            while True:
                self._on_frame(await self.session.receive())
        except PersonaPlexError as error:
            self._on_end(error)
        except Exception:
            logger.exception("a call with the engine failed")
            self._on_end(EngineError("this call failed inside the element; see its log"))

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
