"""Recordings to what agents say to them: codes and words, and audio unless it comes later."""

import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livekit_personaplex.audio import SAMPLE_RATE_HZ, float_to_pcm16, split_frames
from livekit_personaplex.model.audio_file import read_recording
from livekit_personaplex.offline.batch import Written
from livekit_personaplex.offline.captions import write_webvtt
from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.offline.outputs import BatchOptions, JobFiles, is_talk_done, origin
from livekit_personaplex.offline.results import (
    describe,
    write_audio,
    write_codes,
    write_description,
    write_text,
)
from livekit_personaplex.offline.talker import (
    Conversation,
    ConversationMaker,
    TalkerLanes,
    load_talker,
)
from livekit_personaplex.settings import EngineSettings

MAX_INPUT_S = 4 * 3600.0
"""Longest recording taken: it is read whole."""


@dataclass(slots=True)
class TalkStage:
    """The stages ``talker`` and ``both``, for `run_batch`."""

    settings: EngineSettings
    options: BatchOptions
    _maker: ConversationMaker | None = field(default=None, init=False)

    def is_done(self, job: Job) -> bool:
        """Whether this very job has all its outputs."""
        return is_talk_done(job, self.options)

    def load(self, num_jobs: int) -> TalkerLanes:
        """Load the model. Raises what `load_talker` raises."""
        speaks = self.options.makes_audio
        core = load_talker(self.settings, max_slots=num_jobs, speaks=speaks)
        self._maker = ConversationMaker(core)
        return TalkerLanes(core)

    def read(self, job: Job) -> NDArray[np.int16]:
        """Read the caller, ``[n]`` at 24 kHz. Raises `ConfigError`."""
        recording = read_recording(job.source, name=str(job.source), max_s=MAX_INPUT_S)
        return float_to_pcm16(recording)

    def begin(self, job: Job, content: NDArray[np.int16]) -> Conversation:
        """Make the conversation. Raises `ConfigError` for its voice or persona."""
        assert self._maker is not None, "load() first"
        return self._maker.make(job, split_frames(content), num_samples=len(content))

    def write(self, work: Conversation) -> Written:
        """Write every output that is wanted, the description last. Raises `OSError`."""
        said, files = work.dialogue.result(), JobFiles.of(work.job, self.options)
        about = origin(work.job, work.sampling, self.options)
        if self.options.keeps_codes:
            metadata = {"num_samples": str(work.num_samples), "origin": json.dumps(about)}
            write_codes(files.codes, said.tokens, metadata)
        if self.options.makes_audio:
            caller = np.concatenate(work.dialogue.frames)[: work.num_samples]
            agent = said.pcm[: work.num_samples]
            write_audio(files.audio, agent, caller, layout=self.options.layout)
        if self.options.captions:
            write_text(files.captions, write_webvtt(said.timed_texts()))
        description = describe(
            said, voice=work.job.voice, persona=work.job.persona, sampling=work.sampling
        )
        write_description(files.description, {**description, "origin": about})
        return Written(work.num_samples / SAMPLE_RATE_HZ, work.sampling.seed)
