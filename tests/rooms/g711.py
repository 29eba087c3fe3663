"""G.711 in numpy: 8 bits a sample, logarithmic, as every telephone line speaks it."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Law = Literal["mu", "A"]

_MU_BIAS = 132
_MU_CLIP = 32_635
_A_EVEN_BITS = 0x55


def encode(samples: NDArray[np.int16], law: Law) -> NDArray[np.uint8]:
    """Compress samples, any shape."""
    return _encode_mu(samples) if law == "mu" else _encode_a(samples)


def decode(codes: NDArray[np.uint8], law: Law) -> NDArray[np.int16]:
    """Expand codes, any shape."""
    return _decode_mu(codes) if law == "mu" else _decode_a(codes)


def _encode_mu(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    wide = samples.astype(np.int32)
    magnitude = np.minimum(np.abs(wide), _MU_CLIP) + _MU_BIAS
    segment = np.log2(magnitude).astype(np.int32) - 7
    step = (magnitude >> (segment + 3)) & 0x0F
    sign = np.where(wide < 0, 0x80, 0)
    return np.asarray(~(sign | segment << 4 | step) & 0xFF, dtype=np.uint8)


def _decode_mu(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    wide = ~codes.astype(np.int32) & 0xFF
    segment, step = (wide >> 4) & 0x07, wide & 0x0F
    magnitude = (((step << 3) + _MU_BIAS) << segment) - _MU_BIAS
    return np.where(wide & 0x80, -magnitude, magnitude).astype(np.int16)


def _encode_a(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    wide = samples.astype(np.int32)
    magnitude = np.minimum(np.abs(wide) >> 4, 0x7FF)
    segment = np.maximum(np.log2(np.maximum(magnitude, 1)).astype(np.int32) - 3, 0)
    step = (magnitude >> np.maximum(segment - 1, 0)) & 0x0F
    sign = np.where(wide < 0, 0, 0x80)
    return np.asarray((sign | segment << 4 | step) ^ _A_EVEN_BITS, dtype=np.uint8)


def _decode_a(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    wide = codes.astype(np.int32) ^ _A_EVEN_BITS
    segment, step = (wide >> 4) & 0x07, wide & 0x0F
    magnitude = np.where(
        segment == 0, (step << 4) + 8, ((step << 4) + 0x108) << np.maximum(segment - 1, 0)
    )
    return np.where(wide & 0x80, magnitude, -magnitude).astype(np.int16)
