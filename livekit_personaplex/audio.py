"""The one place that knows the model's audio format: 24 kHz mono in frames of 1,920 samples.

Plain numpy, no torch and no files: both sides of the process border use it.
"""

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
FRAME_SAMPLES = 1_920
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
FRAME_MS = 80
FRAME_BYTES = FRAME_SAMPLES * 2
NUM_CODEBOOKS = 8
"""Audio codebooks in use for each speaker."""
NUM_TOKEN_ROWS = 1 + NUM_CODEBOOKS
"""Token rows the agent emits for one frame: text, then its codebooks."""


def pcm16_to_float(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """Scale 16-bit samples to [-1, 1), as the conformance data does (divide by 32,768)."""
    samples: NDArray[np.float32] = pcm.astype(np.float32) / np.float32(32768.0)
    return samples


def float_to_pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Round to 16-bit samples, clipping what lies outside [-1, 1)."""
    scaled = np.rint(samples.astype(np.float32) * np.float32(32768.0))
    pcm: NDArray[np.int16] = np.clip(scaled, -32768, 32767).astype(np.int16)
    return pcm


def split_frames(samples: NDArray[np.int16]) -> list[NDArray[np.int16]]:
    """Cut a whole recording into frames; the last one is padded with zeros."""
    num_frames = -(-len(samples) // FRAME_SAMPLES)
    padded = np.zeros(num_frames * FRAME_SAMPLES, dtype=np.int16)
    padded[: len(samples)] = samples
    return list(padded.reshape(num_frames, FRAME_SAMPLES))
