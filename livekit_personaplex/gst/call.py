"""A conversation with the engine for threads: the wire's asyncio client on a loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from livekit_personaplex.errors import EngineError, PersonaPlexError, SessionClosedError
from livekit_personaplex.log import logger
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineEndpoint
from livekit_personaplex.wire.opening import open_on_any
from livekit_personaplex.wire.protocol import AgentFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """What to open.

    Attributes:
        endpoints: Engines that may take the call.
        voice: Name of a voice; None leaves it to the engine.
        persona: Who the agent is.
        sampling: How it draws its tokens.
        greeting: Words that it begins with; empty for none.
    """

    endpoints: Sequence[EngineEndpoint]
    voice: str | None
    persona: str
    sampling: Sampling
    greeting: str


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
    ) -> None:
        """Open it; blocks until the system prompt is done.

        Args:
            options: What to open.
            on_frame: Told every frame of the agent, in this call's thread; must not block.
            on_end: Told why it ended, in the same way; not after `close`.

        Raises:
            ConfigError: Voice, persona or token cannot be used.
            CapacityError: Every slot is taken.
            EngineError: No engine can be reached, or not in time.
            ProtocolError: Something else listens there.
        """
        self._on_frame = on_frame
        self._on_end = on_end
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
