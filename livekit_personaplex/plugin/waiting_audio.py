"""Audio that waits to be read: bounded, so that what is read is what is said now."""

import asyncio

from livekit_personaplex.log import logger

MAX_WAITING_S = 5.0
MAX_PIECE_S = 0.5


class WaitingAudio:
    """A queue of mono int16 audio for one reader, on one event loop. Nothing here blocks.

    Attributes:
        left_out_s: How much was never read, because the reader could not keep up.
    """

    def __init__(self, rate_hz: int, *, max_waiting_s: float = MAX_WAITING_S) -> None:
        """Make an empty one.

        Args:
            rate_hz: Samples per second.
            max_waiting_s: When more than this waits, all of it is left out.
        """
        self.left_out_s = 0.0
        self._bytes_per_s = 2 * rate_hz
        self._max_waiting_s = max_waiting_s
        self._pcm = bytearray()
        self._is_flushed = False
        self._is_finished = False
        self._changed = asyncio.Event()

    @property
    def duration_s(self) -> float:
        """How much waits."""
        return len(self._pcm) / self._bytes_per_s

    def push(self, pcm: bytes) -> None:
        """Append audio."""
        if (waited_s := self.duration_s) > self._max_waiting_s:
            self.left_out_s += waited_s
            self._pcm.clear()
            logger.warning(
                "captions of the caller lag behind, so a part of the call is not read",
                extra={"now_s": round(waited_s, 1), "so_far_s": round(self.left_out_s, 1)},
            )
        self._pcm += pcm
        self._changed.set()

    def flush(self) -> None:
        """Have what waits read as the end of something."""
        self._is_flushed = True
        self._changed.set()

    def finish(self) -> None:
        """Nothing follows."""
        self._is_finished = True
        self._changed.set()

    async def take(self) -> bytes | None:
        """Wait for the next piece.

        Returns:
            Up to half a second of audio; no bytes where it was flushed; None after the last.
        """
        while not self._pcm:
            if self._is_flushed:
                self._is_flushed = False
                return b""
            if self._is_finished:
                return None
            self._changed.clear()
            await self._changed.wait()
        num_bytes = int(MAX_PIECE_S * self._bytes_per_s)
        piece = bytes(self._pcm[:num_bytes])
        del self._pcm[:num_bytes]
        return piece
