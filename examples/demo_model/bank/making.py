"""Stage ``bank``: worker processes speak everything that the calls are made of, shard by shard.

Shard k is the same on any machine (up to rounding). Agents come first, then the callers kept for
measuring, then the callers of training; a shard that is on disk is never made again.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.demo_model.bank.bank import AUDIO_SUFFIX, LABEL_SUFFIX, LIST_SUFFIX
from examples.demo_model.bank.sayings import sayings
from examples.demo_model.speech import flite
from examples.demo_model.speech.utterance import LABEL, Utterance, join, speech_bounds
from examples.demo_model.speech.voices import AGENTS, Engines, Speaker, caller, flite_callers
from examples.demo_model.talk.domain import Pools, agent_keys, full_pools, sentence, small_pools
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

_SEED = 29
_KEYS_A_SHARD, _CALLERS_A_SHARD = 200, 10
_PROMPTS = 60
_REPORT_S = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """One shard to be made: agent sentences, voice prompts, or callers from ``first`` on."""

    name: str
    kind: str
    folder: str
    first: int
    count: int
    is_small: bool
    speaker: int = 0


def jobs(folder: Path, callers: int, flite_count: int, is_small: bool) -> Iterator[Job]:
    """List all shards in the order in which they are made."""
    total = len(agent_keys(_pools(is_small)))
    for i, agent in enumerate(AGENTS):
        yield Job(f"agent-{agent.name}-p", "prompts", str(folder), 0, _PROMPTS, is_small, i)
        for first in range(0, total, _KEYS_A_SHARD):
            count = min(_KEYS_A_SHARD, total - first)
            name = f"agent-{agent.name}-{first // _KEYS_A_SHARD:03d}"
            yield Job(name, "agent", str(folder), first, count, is_small, i)
    for kind, most in (("flite", flite_count), ("callers", callers)):
        for first in range(0, most, _CALLERS_A_SHARD):
            count = min(_CALLERS_A_SHARD, most - first)
            name = f"{kind}-{first // _CALLERS_A_SHARD:04d}"
            yield Job(name, kind, str(folder), first, count, is_small)


def _pools(is_small: bool) -> Pools:
    return small_pools() if is_small else full_pools()


class ShardWriter:
    """Collects utterances and writes them as one shard."""

    def __init__(self) -> None:
        self.speakers: list[Speaker] = []
        self.rows: list[dict[str, object]] = []
        self.audio: list[NDArray[np.int16]] = []
        self.labels: list[NDArray[np.int16]] = []

    def add(self, speaker: Speaker, key: str, said: Utterance) -> None:
        """Take one utterance, padded to whole frames."""
        if speaker not in self.speakers:
            self.speakers.append(speaker)
        frames = -(-len(said.audio) // FRAME_SAMPLES)
        pcm = np.zeros(frames * FRAME_SAMPLES, np.int16)
        pcm[: len(said.audio)] = np.round(said.audio * 32767)
        labels = np.zeros(frames * FRAME_SAMPLES // LABEL, np.int16)
        labels[: len(said.labels)] = said.labels
        words = [[w.written, round(w.on_s, 3), round(w.off_s, 3)] for w in said.words or ()]
        self.audio.append(pcm)
        self.labels.append(labels)
        self.rows.append(
            {
                "key": key,
                "speaker": self.speakers.index(speaker),
                "frames": frames,
                "speech": [round(t, 3) for t in speech_bounds(said)],
                "words": None if said.words is None else words,
            }
        )

    def write(self, path: Path) -> tuple[int, float]:
        """Write the files, the list last; give utterances and seconds of audio."""
        np.concatenate(self.audio).tofile(path.with_suffix(AUDIO_SUFFIX))
        np.concatenate(self.labels).tofile(path.with_suffix(LABEL_SUFFIX))
        content = {"speakers": [asdict(s) for s in self.speakers], "utterances": self.rows}
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.rename(path.with_suffix(LIST_SUFFIX))
        return len(self.rows), sum(len(a) for a in self.audio) / SAMPLE_RATE_HZ


_ENGINES = Engines()


def make(job: Job) -> tuple[int, float]:
    """Make one shard; seconds of one core."""
    writer = ShardWriter()
    values = _pools(job.is_small)
    numbers = range(job.first, job.first + job.count)
    agent = AGENTS[job.speaker]
    if job.kind == "agent":
        for number, key in enumerate(agent_keys(values)[job.first : job.first + job.count]):
            r = np.random.default_rng([_SEED, 1, job.speaker, job.first + number])
            writer.add(agent, key, _ENGINES.say(agent, sentence(key), r))
    elif job.kind == "prompts":
        keys = agent_keys(values)
        for number in numbers:
            r = np.random.default_rng([_SEED, 2, job.speaker, number])
            writer.add(agent, f"prompt/{number}", _voice_prompt(agent, keys, r))
    else:
        speakers = flite_callers(job.first + job.count) if job.kind == "flite" else []
        for number in numbers:
            speaker = speakers[number] if speakers else caller(number)
            r = np.random.default_rng([_SEED, 3, len(speakers) > 0, number])
            for saying in sayings(r, values, speaker.held):
                writer.add(speaker, saying.key, saying.speak(_ENGINES, speaker, r))
    return writer.write(Path(job.folder) / job.name)


def _voice_prompt(agent: Speaker, keys: list[str], r: np.random.Generator) -> Utterance:
    """Say sentences in a row, cut to 2.5 to 5 s, somewhat quieter than in a call."""
    length_s = float(r.uniform(2.5, 5.0))
    said: list[Utterance] = []
    while sum(part.seconds for part in said) < length_s:
        said.append(_ENGINES.say(agent, sentence(keys[r.integers(len(keys))]), r))
    whole = join(said, list(r.uniform(0.1, 0.4, len(said) - 1)), FRAME_SAMPLES)
    audio = whole.audio[: int(length_s * SAMPLE_RATE_HZ)] * np.float32(
        r.uniform(0.055, 0.08) / 0.09
    )
    words = whole.words and [word for word in whole.words if word.off_s < length_s]
    return Utterance(audio, words, whole.labels[: -(-len(audio) // LABEL)])


def run(todo: list[Job], workers: int, minutes: float) -> None:
    """Make shards in worker processes until all are made or the time is over."""
    began = time.monotonic()
    reported, utterances, seconds, done = began, 0, 0.0, 0
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        results = pool.imap_unordered(make, todo)
        for _ in todo:
            left_s = minutes * 60 - (time.monotonic() - began)
            try:
                count, length_s = results.next(timeout=max(0.0, left_s))
            except multiprocessing.TimeoutError:
                print("time is over; run again to go on")
                break
            done, utterances, seconds = done + 1, utterances + count, seconds + length_s
            now = time.monotonic()
            if now - reported > _REPORT_S or done == len(todo):
                reported = now
                print(
                    f"{done} of {len(todo)} shards, {utterances} utterances, "
                    f"{seconds / 3600:.2f} h in {now - began:.0f} s, "
                    f"{seconds / (now - began):.0f} x real time, "
                    f"{seconds * 48e-6:.2f} GB",
                    flush=True,
                )


def main() -> None:
    """Read the command line and make what is missing."""
    parser = argparse.ArgumentParser(description="Speak the bank of utterances.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--callers", type=int, default=3600)
    parser.add_argument("--flite", type=int, default=40, help="callers kept for measuring")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--small", action="store_true", help="a small part of the domain")
    options = parser.parse_args()
    folder = options.work / "bank"
    folder.mkdir(parents=True, exist_ok=True)
    flite_count = options.flite
    if flite_count and flite.command() is None:
        print("flite is not installed: the callers kept for measuring are left out")
        flite_count = 0
    os.environ["OMP_NUM_THREADS"] = "1"
    todo = [
        job
        for job in jobs(folder, options.callers, flite_count, options.small)
        if not (folder / f"{job.name}{LIST_SUFFIX}").exists()
    ]
    print(f"{len(todo)} shards to make, {options.workers} workers", flush=True)
    if todo:
        run(todo, options.workers, options.minutes)
