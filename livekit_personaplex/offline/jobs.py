"""What is to be done: one job for every recording of a folder, a list, or a JSONL file.

* A folder: every file in it, and below it, of a suffix that is wanted; hidden ones are left out.
* ``.txt``: the path of a recording on each line; empty lines and those that begin with # are not.
* ``.jsonl``: an object on each line, as `JOB_FIELDS` says. ``input`` is needed, and ``voice``
  unless one is given for all; ``name`` is that of the outputs.

Paths in a file are relative to its folder. A list that has a mistake is refused as a whole, before
anything is begun: what a line says is known then, and what its recording is like is not.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from livekit_personaplex.errors import ConfigError
from livekit_personaplex.sampling import SAMPLING_FIELDS, Sampling

JOB_FIELDS = ("input", "name", "voice", "persona", *SAMPLING_FIELDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One recording and what to do with it.

    Attributes:
        name: Of its outputs, without a suffix; may have folders in it.
        source: The recording; for ``code2wav`` the file of codes.
        voice: Name or file of a voice.
        persona: Who the agent is.
        sampling: How tokens are drawn; without a seed, one is drawn.
    """

    name: str
    source: Path
    voice: str = ""
    persona: str = ""
    sampling: Sampling = Sampling()


def read_jobs(
    inputs: Path, defaults: Job, *, suffixes: Collection[str], output_dir: Path
) -> list[Job]:
    """Read a folder, list or JSONL file.

    Args:
        inputs: Which.
        defaults: Gives voice, persona and sampling where a job has none of its own.
        suffixes: Of the files of a folder that are taken, in lower case.
        output_dir: Files in it are not taken from a folder around it.

    Raises:
        ConfigError: It cannot be read, holds nothing, or a line or a name cannot be used.
    """
    if inputs.is_dir():
        fields = _walk(inputs, suffixes, output_dir)
    elif inputs.suffix in (".txt", ".jsonl") and inputs.is_file():
        fields = list(_read_lines(inputs))
    else:
        raise ConfigError(f"expected a folder, a .txt or a .jsonl file at {inputs}")
    folder = inputs if inputs.is_dir() else inputs.parent
    jobs = [_make_job(where, given, folder, defaults) for where, given in fields]
    if not jobs:
        raise ConfigError(f"{inputs} holds nothing to do ({', '.join(sorted(suffixes))})")
    _check_names(jobs)
    return jobs


def _walk(
    folder: Path, suffixes: Collection[str], output_dir: Path
) -> list[tuple[str, dict[str, object]]]:
    outputs = output_dir.resolve()
    is_inside = folder.resolve() in outputs.parents
    found: list[tuple[str, dict[str, object]]] = []
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_output = is_inside and outputs in path.resolve().parents
        if path.suffix.lower() in suffixes and path.is_file() and not is_hidden and not is_output:
            found.append((str(path), {"input": str(path.relative_to(folder))}))
    return found


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a list of recordings: {error}") from None
    for number, line in enumerate(lines, start=1):
        where = f"{path.name}, line {number}"
        if not line.strip() or (path.suffix == ".txt" and line.startswith("#")):
            continue
        yield where, {"input": line.strip()} if path.suffix == ".txt" else _parse(where, line)


def _parse(where: str, line: str) -> dict[str, object]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: expected a JSON object: {error}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: expected a JSON object, got {type(given).__name__}")
    if unknown := sorted(given.keys() - set(JOB_FIELDS)):
        raise ConfigError(
            f"{where}: unknown fields {', '.join(unknown)}; known are {', '.join(JOB_FIELDS)}"
        )
    return given


def _make_job(where: str, given: Mapping[str, object], folder: Path, defaults: Job) -> Job:
    sampling = {name: given.get(name, getattr(defaults.sampling, name)) for name in SAMPLING_FIELDS}
    try:
        source = _take_text(given, "input", "")
        if not source:
            raise ConfigError("expected a path as input")
        return Job(
            name=_check_name(_take_text(given, "name", _default_name(source))),
            source=folder / source,
            voice=_take_text(given, "voice", defaults.voice),
            persona=_take_text(given, "persona", defaults.persona),
            sampling=Sampling(**sampling),  # type: ignore[arg-type]  # it checks every one
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _take_text(given: Mapping[str, object], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, got {type(value).__name__}")
    return value


def _default_name(source: str) -> str:
    """Name outputs after a file: with its folders where it lies below the list, else without."""
    path = PurePosixPath(source)
    is_below = not path.is_absolute() and ".." not in path.parts
    return str(path.with_suffix("")) if is_below else path.stem


def _check_name(name: str) -> str:
    path = PurePosixPath(name)
    is_safe = not path.is_absolute() and not any(part.startswith(".") for part in path.parts)
    if not path.parts or not is_safe or "\0" in name:
        raise ConfigError(f"a name is a relative path without dots in front, got {name!r}")
    return str(path)


def _check_names(jobs: list[Job]) -> None:
    seen: dict[str, Path] = {}
    for job in jobs:
        if job.name in seen:
            raise ConfigError(
                f"the outputs of {seen[job.name]} and {job.source} would both be named "
                f"{job.name}; give them names of their own in a .jsonl file"
            )
        seen[job.name] = job.source
