"""What became of every job: a line of JSON each, written as it is known."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.offline.jobs import Job

Status = Literal["done", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One job's end.

    Attributes:
        name: Of its outputs.
        input: Its recording, or file of codes.
        status: ``skipped`` means that it was done already.
        audio_s: Length of the recording, where it was read.
        seed: Of its sampling, where tokens were drawn.
        error: Why it failed.
    """

    name: str
    input: str
    status: Status
    audio_s: float | None = None
    seed: int | None = None
    error: str | None = None


class Report:
    """Writes entries to a file, in the order of their ends; counts them."""

    def __init__(self, path: Path, on_entry: Callable[[Entry], object]) -> None:
        """Begin a report; one that is there is replaced.

        Args:
            path: A JSONL file.
            on_entry: Called with every entry.

        Raises:
            ConfigError: It cannot be written.
        """
        self.counts: dict[Status, int] = {"done": 0, "skipped": 0, "failed": 0}
        self._on_entry = on_entry
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ConfigError(f"a report cannot be written to {path}: {error}") from None

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def skipped(self, job: Job) -> None:
        """A job was done before."""
        self._add(Entry(name=job.name, input=str(job.source), status="skipped"))

    def done(self, job: Job, *, audio_s: float, seed: int | None) -> None:
        """A job is done."""
        entry = Entry(
            name=job.name,
            input=str(job.source),
            status="done",
            audio_s=round(audio_s, 3),
            seed=seed,
        )
        self._add(entry)

    def failed(self, job: Job, error: Exception) -> None:
        """A job cannot be done; the others go on."""
        message = str(error) or type(error).__name__
        self._add(Entry(name=job.name, input=str(job.source), status="failed", error=message))

    def _add(self, entry: Entry) -> None:
        self.counts[entry.status] += 1
        known = {name: value for name, value in asdict(entry).items() if value is not None}
        self._file.write(json.dumps(known, ensure_ascii=False) + "\n")
        self._on_entry(entry)
