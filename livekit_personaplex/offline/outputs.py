"""The files of one job in the output folder, and whether they are there already."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import soundfile

from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.sampling import Sampling

STAGES = ("both", "talker", "code2wav")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOptions:
    """What is made of every recording.

    Attributes:
        output_dir: Where.
        stage: ``talker`` gives codes and words, ``code2wav`` makes audio of codes, ``both`` both.
        layout: Of the audio, see `results.LAYOUTS`.
        captions: Also write the agent's words as captions.
        codes: Also keep the codes, which ``talker`` always does.
    """

    output_dir: Path
    stage: str = "both"
    layout: str = "mono"
    captions: bool = False
    codes: bool = False

    @property
    def makes_audio(self) -> bool:
        """Whether there is audio in the end."""
        return self.stage != "talker"

    @property
    def keeps_codes(self) -> bool:
        """Whether codes are written."""
        return self.codes or self.stage == "talker"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Paths of one job's outputs.

    Attributes:
        audio: WAV.
        codes: safetensors, as `results.write_codes` says.
        captions: WebVTT.
        description: JSON: the agent's words, and what they came of; written last.
    """

    audio: Path
    codes: Path
    captions: Path
    description: Path

    @staticmethod
    def of(job: Job, options: BatchOptions) -> "JobFiles":
        """Give the paths of a job."""
        stem = f"{options.output_dir}/{job.name}"
        return JobFiles(
            Path(f"{stem}.wav"),
            Path(f"{stem}.safetensors"),
            Path(f"{stem}.vtt"),
            Path(f"{stem}.json"),
        )


def origin(job: Job, sampling: Sampling, options: BatchOptions) -> dict[str, object]:
    """Say what outputs came of: the same origin, the same outputs."""
    return {
        "input": str(job.source.resolve()),
        "voice": job.voice,
        "persona": job.persona,
        "sampling": asdict(sampling),
        "layout": options.layout if options.makes_audio else None,
    }


def is_talk_done(job: Job, options: BatchOptions) -> bool:
    """Whether this very job has all its outputs; one without a seed takes any seed's."""
    files = JobFiles.of(job, options)
    wanted = [files.audio] * options.makes_audio + [files.codes] * options.keeps_codes
    wanted += [files.captions] * options.captions
    if not all(path.is_file() for path in wanted):
        return False
    try:
        written = json.loads(files.description.read_text(encoding="utf-8"))["origin"]
        if job.sampling.seed is None:
            written["sampling"]["seed"] = None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False  # it is not there, or not ours
    return bool(written == origin(job, job.sampling, options))


def is_audio_done(job: Job, options: BatchOptions) -> bool:
    """Whether the codes of this job have their audio: of this layout, and not older than they."""
    audio = JobFiles.of(job, options).audio
    try:
        is_newer = audio.stat().st_mtime_ns >= job.source.stat().st_mtime_ns
        channels = soundfile.info(audio).channels
    except (OSError, soundfile.SoundFileError):
        return False
    return is_newer and channels == (1 if options.layout == "mono" else 2)
