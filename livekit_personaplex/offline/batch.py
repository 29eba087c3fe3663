"""Works off a list of jobs and reports on each; those that fail do not keep the others.

A job ends in files that are whole, or in none, so that a run that was ended half way is taken up
where it was by the same command.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.offline.jobs import Job
from livekit_personaplex.offline.lanes import Lanes, Work, keep_busy
from livekit_personaplex.offline.read_ahead import read_ahead
from livekit_personaplex.offline.report import Report


class JobWork(Work, Protocol):
    """A job's work on its way."""

    @property
    def job(self) -> Job:
        """What was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """What is reported of a job that is done: the length of its audio, and its seed."""

    audio_s: float
    seed: int | None = None


R = TypeVar("R")
W = TypeVar("W", bound=JobWork)


class Stage(Protocol[R, W]):
    """What is done to every job."""

    def is_done(self, job: Job) -> bool:
        """Whether a job has its outputs already."""
        ...

    def load(self, num_jobs: int) -> Lanes[W]:
        """Load what the work needs; called once, before what follows. Blocks for long."""
        ...

    def read(self, job: Job) -> R:
        """Read a job's file. Called in a thread beside the work."""
        ...

    def begin(self, job: Job, content: R) -> W:
        """Make the work of a job."""
        ...

    def write(self, work: W) -> Written:
        """Write the outputs of work that is done."""
        ...


def run_batch(jobs: Sequence[Job], stage: Stage[R, W], report: Report) -> None:
    """Do every job that is not done yet. Blocks until all are; loads a model only for work.

    Raises:
        CheckpointError: The model's files cannot be used.
        ConfigError: A setting cannot be used.
    """
    remaining = []
    for job in jobs:
        if stage.is_done(job):
            report.skipped(job)
        else:
            remaining.append(job)
    if not remaining:
        return
    lanes = stage.load(len(remaining))
    for work in keep_busy(lanes, _each(remaining, stage, report)):
        try:
            written = stage.write(work)
        except Exception as error:
            _fail(work.job, error, report)
        else:
            report.done(work.job, audio_s=written.audio_s, seed=written.seed)


def _each(jobs: Sequence[Job], stage: Stage[R, W], report: Report) -> Iterator[W]:
    """Give the work of every job that can be begun."""
    for job, content in read_ahead(jobs, stage.read):
        try:
            work = stage.begin(job, content.result())
        except Exception as error:
            _fail(job, error, report)
        else:
            yield work


def _fail(job: Job, error: Exception, report: Report) -> None:
    """The border of one job: whatever is wrong with it, the others go on."""
    if not isinstance(error, (PersonaPlexError, OSError)):
        logger.error("a job failed", extra={"job": job.name}, exc_info=error)
    report.failed(job, error)
