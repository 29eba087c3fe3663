"""Messages on their way to one client: bounded, so that a slow reader costs only itself."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from livekit_personaplex.wire.protocol import AgentFrame, Reply

Message = AgentFrame | Reply
"""What a client is told; the connection puts it into the words of its protocol."""


class Outbox:
    """Queue of one connection, on the asyncio loop. It ends once, with a last message or none."""

    def __init__(self, max_messages: int) -> None:
        """Make an empty outbox."""
        self._max_messages = max_messages
        self._messages: deque[Message] = deque()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can be put."""
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until nothing more can be put; messages may still be on their way."""
        await self._ended.wait()

    def put(self, message: Message) -> bool:
        """Queue a message; ignored after the end. False: the outbox is full and took it not."""
        if self.has_ended:
            return True
        if len(self._messages) >= self._max_messages:
            return False
        self._messages.append(message)
        self._changed.set()
        return True

    def end(self, last_message: Message) -> None:
        """Send what is queued, then `last_message`, then nothing. Only the first end counts."""
        if not self.has_ended:
            self._messages.append(last_message)
            self._finish()

    def abandon(self) -> None:
        """Send nothing more: nobody reads. Only the first end counts."""
        if not self.has_ended:
            self._messages.clear()
            self._finish()

    async def messages(self) -> AsyncIterator[Message]:
        """Give every message as it comes; stops at the end."""
        while True:
            while self._messages:
                yield self._messages.popleft()
            if self.has_ended:
                return
            self._changed.clear()
            await self._changed.wait()

    def _finish(self) -> None:
        self._ended.set()
        self._changed.set()
