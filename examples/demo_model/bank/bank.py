"""The bank of utterances: everything that agents and callers say, spoken once, on disk.

``python -m examples.demo_model.bank WORK`` makes it (``making.py``); the rest reads it. A
shard is a file of audio, one of phoneme labels and a ``.json`` that lists its utterances and is
written last. Every utterance is padded to whole frames.
"""

import json
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from examples.demo_model.speech.utterance import LABEL, Word
from examples.demo_model.speech.voices import Speaker
from livekit_personaplex.audio import FRAME_SAMPLES

if TYPE_CHECKING:
    from torch import Tensor

_KEPT = "index.pickle"
AUDIO_SUFFIX, LABEL_SUFFIX, LIST_SUFFIX = ".pcm", ".lab", ".json"


class WordTable(Sequence["list[Word] | None"]):
    """Words of all utterances in flat arrays; ``table[i]`` makes the list, None where unknown."""

    def __init__(self, rows: list[list[list[Any]] | None]) -> None:
        flat = [word for row in rows if row is not None for word in row]
        ids: dict[str, int] = {}
        self.ids = np.array([ids.setdefault(w[0], len(ids)) for w in flat], dtype=np.int32)
        self.vocabulary = list(ids)
        self.on_s = np.array([w[1] for w in flat], dtype=np.float32)
        self.off_s = np.array([w[2] for w in flat], dtype=np.float32)
        self.is_known = np.array([row is not None for row in rows], dtype=np.bool_)
        self.first = np.cumsum([0, *(len(row or ()) for row in rows)])

    def __len__(self) -> int:
        return len(self.is_known)

    def __getitem__(self, index: Any) -> Any:
        if not self.is_known[index]:
            return None
        span = range(self.first[index], self.first[index + 1])
        return [
            Word(self.vocabulary[self.ids[i]], float(self.on_s[i]), float(self.off_s[i]))
            for i in span
        ]


@dataclass(frozen=True, eq=False)
class Bank:
    """All utterances of the shards that were complete when the bank was opened.

    Attributes:
        shards: Their files, in the order of the utterances.
        sizes: ``[shards] int64`` samples of each.
        start: ``[N] int64`` first sample, as if all shards were one; a multiple of a frame.
        frames: ``[N] int32`` length of each utterance.
        speaker: ``[N] int32`` index into ``speakers``.
        speech_s: ``[N, 2] float32`` when speech begins and ends in the utterance.
        keys: What is said.
        words: ``words[i]`` is the words of utterance i with their times, None where unknown.
    """

    shards: list[Path]
    sizes: NDArray[np.int64]
    start: NDArray[np.int64]
    frames: NDArray[np.int32]
    speaker: NDArray[np.int32]
    speech_s: NDArray[np.float32]
    keys: list[str]
    words: WordTable
    speakers: list[Speaker]
    by_speaker: list[dict[str, int]]

    @classmethod
    def open(cls, folder: Path) -> "Bank":
        """Read the lists of all complete shards; the audio stays on disk.

        The lists of a large bank take seconds to read, so what comes of them is kept beside them
        for the next process.

        Raises:
            FileNotFoundError: No shard is complete.
        """
        lists = sorted(Path(folder).glob(f"*{LIST_SUFFIX}"))
        if not lists:
            raise FileNotFoundError(f"{folder} holds no complete shard; make the bank first")
        stamps = [(path.name, path.stat().st_mtime_ns) for path in lists]
        kept = Path(folder) / _KEPT
        if kept.exists():
            kept_stamps, bank = pickle.loads(kept.read_bytes())
            if kept_stamps == stamps and isinstance(bank, cls):
                return replace(bank, shards=[path.with_suffix("") for path in lists])
        bank = cls._read_lists(lists)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps((stamps, bank)))
        partial.rename(kept)
        return bank

    @classmethod
    def _read_lists(cls, lists: list[Path]) -> "Bank":
        speakers: dict[str, int] = {}
        by_index: list[Speaker] = []
        rows: list[dict[str, Any]] = []
        owners: list[int] = []
        sizes = []
        for path in lists:
            shard = json.loads(path.read_text(encoding="utf-8"))
            for settings in shard["speakers"]:
                if settings["name"] not in speakers:
                    speakers[settings["name"]] = len(by_index)
                    by_index.append(Speaker(**settings))
            local = [speakers[settings["name"]] for settings in shard["speakers"]]
            rows += shard["utterances"]
            owners += [local[row["speaker"]] for row in shard["utterances"]]
            sizes.append(FRAME_SAMPLES * sum(row["frames"] for row in shard["utterances"]))
        frames = np.array([row["frames"] for row in rows], dtype=np.int32)
        unique: dict[str, str] = {}
        keys = [unique.setdefault(row["key"], row["key"]) for row in rows]
        by_speaker: list[dict[str, int]] = [{} for _ in by_index]
        for i, (owner, key) in enumerate(zip(owners, keys, strict=True)):
            by_speaker[owner][key] = i
        return cls(
            shards=[path.with_suffix("") for path in lists],
            sizes=np.array(sizes, dtype=np.int64),
            start=np.cumsum([0, *frames[:-1].astype(np.int64)]) * FRAME_SAMPLES,
            frames=frames,
            speaker=np.array(owners, dtype=np.int32),
            speech_s=np.array([row["speech"] for row in rows], dtype=np.float32),
            keys=keys,
            words=WordTable([row["words"] for row in rows]),
            speakers=by_index,
            by_speaker=by_speaker,
        )

    @property
    def num_samples(self) -> int:
        """Samples of all utterances together."""
        return int(self.sizes.sum())

    def find(self, speaker: int, key: str) -> int:
        """Give the utterance in which a speaker says a key.

        Raises:
            KeyError: The bank does not have it.
        """
        return self.by_speaker[speaker][key]

    def speakers_of(self, role: str, held: bool | None = None) -> list[int]:
        """List speakers of a role, all or only the held ones or the others."""
        return [
            i
            for i, speaker in enumerate(self.speakers)
            if speaker.role == role and held in (None, speaker.held)
        ]

    def audio_of(self, utterance: int) -> NDArray[np.int16]:
        """Read one utterance from disk, ``[frames * 1920]``."""
        start, count = int(self.start[utterance]), int(self.frames[utterance]) * FRAME_SAMPLES
        return self._read(AUDIO_SUFFIX, start, count, 1)

    def labels_of(self, utterance: int) -> NDArray[np.int16]:
        """Read the phonemes of one utterance from disk, ``[frames * 4]``, one per 20 ms."""
        start, count = int(self.start[utterance]), int(self.frames[utterance]) * FRAME_SAMPLES
        return self._read(LABEL_SUFFIX, start, count, LABEL)

    def _read(self, suffix: str, start: int, count: int, per: int) -> NDArray[np.int16]:
        ends = np.cumsum(self.sizes)
        shard = int(np.searchsorted(ends, start, side="right"))
        offset = start - int(ends[shard] - self.sizes[shard])
        path = self.shards[shard].with_suffix(suffix)
        return np.fromfile(path, np.int16, count // per, offset=2 * (offset // per))

    def parts(self) -> Iterator[tuple[slice, NDArray[np.int16], NDArray[np.int16]]]:
        """Read shard by shard: the samples' place in the whole, audio, labels."""
        end = 0
        for path, size in zip(self.shards, self.sizes.tolist(), strict=True):
            audio = np.fromfile(path.with_suffix(AUDIO_SUFFIX), np.int16)
            labels = np.fromfile(path.with_suffix(LABEL_SUFFIX), np.int16)
            yield slice(end, end + size), audio, labels
            end += size

    def copy_to(self, audio: "Tensor", labels: "Tensor | None" = None) -> None:
        """Fill ``audio [num_samples] int16`` (any device), and ``labels [num_samples / 480]``."""
        import torch

        for place, samples, phonemes in self.parts():
            audio[place].copy_(torch.from_numpy(samples))
            if labels is not None:
                part = slice(place.start // LABEL, place.stop // LABEL)
                labels[part].copy_(torch.from_numpy(phonemes))
