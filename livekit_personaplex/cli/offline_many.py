"""``livekit-personaplex offline --inputs``: many recordings."""

import argparse
import sys
import time
from pathlib import Path

from tqdm import tqdm

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.offline.batch import run_batch
from livekit_personaplex.offline.decode_stage import DecodeStage
from livekit_personaplex.offline.jobs import Job, read_jobs
from livekit_personaplex.offline.outputs import BatchOptions, JobFiles
from livekit_personaplex.offline.report import Entry, Report
from livekit_personaplex.offline.talk_stage import TalkStage
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings

EXIT_SOME_FAILED = 1
AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3"})
CODE_SUFFIXES = frozenset({".safetensors"})


def run_many(arguments: argparse.Namespace) -> int:
    """Work off a list of recordings; gives the exit code."""
    options = _options(arguments)
    jobs = _read_jobs(arguments, options)
    settings = EngineSettings.from_env(
        model=arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        slots=arguments.slots,
    )
    report_path: Path = arguments.report or options.output_dir / "report.jsonl"
    with tqdm(total=len(jobs), unit=" files", desc=options.stage) as bar:
        progress = Progress(bar)
        report = Report(report_path, progress.show)
        try:
            if options.stage == "code2wav":
                run_batch(jobs, DecodeStage(settings, options), report)
            else:
                run_batch(jobs, TalkStage(settings, options), report)
        finally:
            report.close()
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items())
    sys.stderr.write(f"{counts}; see {report_path}\n")
    return EXIT_SOME_FAILED if report.counts["failed"] else 0


class Progress:
    """A bar on standard error, with the speed in times real time, and a line for each failure."""

    def __init__(self, bar: "tqdm[None]") -> None:
        """Show on a bar that counts jobs."""
        self._bar = bar
        self._began_s = time.monotonic()
        self._audio_s = 0.0

    def show(self, entry: Entry) -> None:
        """Count a job."""
        if entry.status == "failed":
            self._bar.write(f"{entry.name}: {entry.error}", file=sys.stderr)
        self._audio_s += entry.audio_s or 0.0
        speed = self._audio_s / max(time.monotonic() - self._began_s, 1e-3)
        self._bar.set_postfix_str(f"{speed:.1f}x real time", refresh=False)
        self._bar.update()


def _options(arguments: argparse.Namespace) -> BatchOptions:
    alone = [arguments.output, arguments.text, arguments.captions, arguments.tokens]
    if any(path is not None for path in alone):
        raise ConfigError(
            "--output, --text, --captions and --tokens are for one recording; many go to "
            "--output-dir, with --with-captions and --with-codes"
        )
    if arguments.output_dir is None:
        raise ConfigError("expected --output-dir, a folder for what comes of --inputs")
    if arguments.output_dir.exists() and not arguments.output_dir.is_dir():
        raise ConfigError(f"expected a folder at {arguments.output_dir}, it is a file")
    return BatchOptions(
        output_dir=arguments.output_dir,
        stage=arguments.stage,
        layout=arguments.layout,
        captions=arguments.with_captions,
        codes=arguments.with_codes,
    )


def _read_jobs(arguments: argparse.Namespace, options: BatchOptions) -> list[Job]:
    decodes = options.stage == "code2wav"
    inputs: Path = arguments.inputs
    if not decodes and inputs.is_dir() and inputs.resolve() == options.output_dir.resolve():
        raise ConfigError(
            f"{inputs} cannot be the output folder too: outputs would be inputs next time"
        )
    defaults = Job(
        name="",
        source=inputs,
        voice=arguments.voice or "",
        persona=arguments.persona,
        sampling=Sampling(greedy=arguments.greedy, seed=arguments.seed),
    )
    suffixes = CODE_SUFFIXES if decodes else AUDIO_SUFFIXES
    jobs = read_jobs(inputs, defaults, suffixes=suffixes, output_dir=options.output_dir)
    voiceless = [job for job in jobs if not job.voice]
    if voiceless and not decodes:
        raise ConfigError(
            f"{voiceless[0].source} has no voice: give --voice, or one on each line of a .jsonl"
        )
    recordings = {job.source.resolve() for job in jobs}
    for job in jobs:
        if (path := JobFiles.of(job, options).audio).resolve() in recordings:
            raise ConfigError(
                f"the output of {job.source} would replace the recording {path}; choose another "
                "--output-dir"
            )
    return jobs
