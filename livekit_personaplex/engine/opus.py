"""Opus in Ogg pages, in pieces as they come over a network: what NVIDIA's protocol carries.

The codec is `sphn`, which the reference uses too. It is imported when the first stream is made: an
engine that speaks only its own protocol needs none of it. A frame takes it 0.4 ms to encode and
0.05 ms to decode, both on the caller's thread.
"""

import importlib.util

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ, float_to_pcm16, pcm16_to_float
from livekit_personaplex.errors import ConfigError, ProtocolError

MAX_PIECE_S = 5.0
"""Longest audio taken in one piece; clients send 40 or 80 ms."""
_STRIDE_BYTES = 1_024
"""Given to the decoder at a time. A page of empty packets is half a kilobyte and many seconds, so
that what a hostile piece holds is known only on the way."""


def check_opus() -> None:
    """Raises `ConfigError` when `sphn` is not installed."""
    if importlib.util.find_spec("sphn") is None:
        raise ConfigError(
            "NVIDIA's protocol needs the Opus codec of sphn; "
            "install it with: pip install 'livekit-personaplex[nvidia]'"
        )


class OpusReader:
    """Decodes one client's stream to 24 kHz mono."""

    def __init__(self) -> None:
        """Expect the beginning of a stream."""
        import sphn

        self._stream = sphn.OpusStreamReader(SAMPLE_RATE_HZ)

    def read(self, piece: bytes) -> NDArray[np.int16]:
        """Decode the next bytes of the stream; pages may be cut anywhere.

        Returns:
            ``[n]`` samples that are complete now, often none.

        Raises:
            ProtocolError: They are no Ogg pages with Opus, or hold more than `MAX_PIECE_S`.
        """
        decoded, num_samples = [], 0
        for first in range(0, len(piece), _STRIDE_BYTES):
            try:
                samples = self._stream.append_bytes(piece[first : first + _STRIDE_BYTES])
            except ValueError as error:
                raise ProtocolError(f"expected an Ogg stream of Opus audio: {error}") from None
            decoded.append(np.asarray(samples, dtype=np.float32))
            num_samples += len(samples)
            if num_samples > MAX_PIECE_S * SAMPLE_RATE_HZ:
                raise ProtocolError(
                    f"a message may hold {MAX_PIECE_S:g} s of audio; send it as it is spoken"
                )
        return float_to_pcm16(np.concatenate(decoded or [np.zeros(0, dtype=np.float32)]))


class OpusWriter:
    """Encodes one stream; what it gives for the first frame begins with the stream's headers."""

    def __init__(self) -> None:
        """Begin a stream."""
        import sphn

        self._stream = sphn.OpusStreamWriter(SAMPLE_RATE_HZ)

    def write(self, pcm: NDArray[np.int16]) -> bytes:
        """Encode one frame of ``[1920]`` samples to whole Ogg pages."""
        pages: bytes = self._stream.append_pcm(pcm16_to_float(pcm))
        return pages
