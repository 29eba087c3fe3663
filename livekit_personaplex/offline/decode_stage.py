"""Codes that were kept to audio: of the agent alone, or with the caller it talked to."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ, float_to_pcm16
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.model.audio_file import read_recording
from livekit_personaplex.offline.batch import Written
from livekit_personaplex.offline.code2wav import DecoderLanes, Decoding, load_decoder, read_codes
from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.offline.outputs import BatchOptions, JobFiles, is_audio_done
from livekit_personaplex.offline.results import write_audio
from livekit_personaplex.settings import EngineSettings


@dataclass(slots=True)
class DecodeStage:
    """The stage ``code2wav``, for `run_batch`."""

    settings: EngineSettings
    options: BatchOptions
    _codebook_size: int = field(default=0, init=False)

    def is_done(self, job: Job) -> bool:
        """Whether these codes have their audio."""
        return is_audio_done(job, self.options)

    def load(self, num_jobs: int) -> DecoderLanes:
        """Load the codec. Raises what `load_decoder` raises."""
        lanes = load_decoder(self.settings, max_rows=num_jobs)
        self._codebook_size = lanes.codebook_size
        return lanes

    def read(self, job: Job) -> Decoding:
        """Read the codes, and the caller where both speakers are wanted. Raises `ConfigError`."""
        codes, metadata = read_codes(job.source, codebook_size=self._codebook_size)
        num_samples = codes.shape[1] * FRAME_SAMPLES
        try:
            num_samples = min(num_samples, int(metadata.get("num_samples", num_samples)))
            origin = json.loads(metadata.get("origin", "{}"))
            recording = Path(origin["input"]) if "input" in origin else None
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{job.source} holds metadata that is not ours: {error}") from None
        caller = np.zeros(num_samples, dtype=np.int16)
        if self.options.layout != "mono":
            caller = _read_caller(job, recording, num_samples)
        return Decoding(job, codes, caller)

    def begin(self, job: Job, content: Decoding) -> Decoding:
        """Take it as it was read."""
        return content

    def write(self, work: Decoding) -> Written:
        """Write the audio. Raises `OSError`."""
        num_samples = len(work.caller)
        agent = np.concatenate(work.frames)[:num_samples]
        path = JobFiles.of(work.job, self.options).audio
        write_audio(path, agent, work.caller, layout=self.options.layout)
        return Written(num_samples / SAMPLE_RATE_HZ)


def _read_caller(job: Job, recording: Path | None, num_samples: int) -> NDArray[np.int16]:
    if recording is None:
        raise ConfigError(f"{job.source} does not say whom the agent talked to; use --layout mono")
    max_s = num_samples / SAMPLE_RATE_HZ + 1.0  # rates do not divide; the exact length is checked
    samples = float_to_pcm16(read_recording(recording, name=str(recording), max_s=max_s))
    if len(samples) != num_samples:
        raise ConfigError(
            f"{recording} is not the recording that the agent of {job.source} talked to: expected "
            f"{num_samples} samples at 24 kHz, got {len(samples)}"
        )
    return samples
