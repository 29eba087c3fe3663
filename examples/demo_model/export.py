"""Stage ``export``: writes the checkpoint folder that the product loads.

``python -m examples.demo_model.export WORK`` makes ``WORK/checkpoint`` of what the other stages
left: ``config.json``, both weight files, the vocabulary and ``voices.tgz``.
"""

import argparse
import gzip
import io
import json
import shutil
import tarfile
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from examples.demo_model.bank.bank import Bank
from examples.demo_model.codec.mimi import FILE_NAME
from examples.demo_model.lm.columns import delay_frames, prompt_frames
from examples.demo_model.lm.training import load_weights
from examples.demo_model.lm.workshop import PROMPT_KEY, open_codec, open_tokens, voice_prompt
from examples.demo_model.sizes import DELAYS, NUM_STEPS, SIZES, Sizes, config_json, product_config
from examples.demo_model.speech.voices import AGENT
from examples.demo_model.tokens import FILE as TOKENS_FILE
from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.model.lm_state import RING_COLUMNS
from livekit_personaplex.model.lm_weights import lm_tensor_shapes

_UNWRITTEN = -2
"""What a ring holds where no step has written."""


@dataclass(frozen=True, slots=True)
class SpokenVoice:
    """A voice of the archive.

    Attributes:
        name: What clients ask for.
        pcm: ``[samples] int16`` as recorded.
        codes: ``[8, F] int64``, of the recording as loud as the product makes it.
    """

    name: str
    pcm: NDArray[np.int16]
    codes: torch.Tensor


def write_checkpoint(
    folder: Path,
    sizes: Sizes,
    tensors: Mapping[str, torch.Tensor],
    codec: Path,
    tokens: Path,
    voices: Sequence[SpokenVoice],
) -> None:
    """Write a checkpoint.

    Args:
        folder: Made if it does not exist; files in it are written over.
        sizes: Of the model.
        tensors: Of the language model by the checkpoint's names; others are left out.
        codec: The codec's file.
        tokens: The vocabulary's file.
        voices: With recordings; each is stored as summed inputs as well.

    Raises:
        ValueError: A tensor is missing or misshaped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = product_config(sizes)
    stored = {}
    for name, shape in lm_tensor_shapes(config, stored_steps=NUM_STEPS).items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            raise ValueError(f"{name} must be there and {list(shape)}; was it trained so?")
        stored[name] = tensors[name].to(torch.bfloat16).contiguous()
    (folder / config.model_name).unlink(missing_ok=True)
    save_file(stored, folder / config.model_name)
    (folder / config.model_name).chmod(0o644)
    content = json.dumps(config_json(sizes), indent=1) + "\n"
    (folder / "config.json").write_text(content, encoding="utf-8")
    shutil.copyfile(codec, folder / config.mimi_name)
    shutil.copyfile(tokens, folder / config.tokenizer_name)
    files: dict[str, bytes] = {}
    for voice in voices:
        files[f"voices/{voice.name}.wav"] = _wav(voice.pcm)
        files[f"voices/{voice.name}.pt"] = _saved_voice(voice.codes, stored, sizes)
    _write_archive(folder / config.voices_name, files)


def _saved_voice(codes: torch.Tensor, tensors: Mapping[str, torch.Tensor], sizes: Sizes) -> bytes:
    """Give the ``.pt`` form: summed inputs of F - 1 steps and the token ring after F."""
    count = codes.shape[1]
    frames = prompt_frames(codes, [])[:, : count + 1]
    columns = delay_frames(frames, sizes.text_card)
    names = ["text_emb.weight", *(f"emb.{book}.weight" for book in range(2 * NUM_STEPS))]
    embeddings = torch.stack(
        [
            tensors[name].float()[ids]
            for name, ids in zip(names, columns[:, : count - 1], strict=True)
        ]
    ).sum(0)
    ring = torch.full((len(DELAYS), RING_COLUMNS), _UNWRITTEN, dtype=torch.int64)
    for row, delay in enumerate(DELAYS):
        for column in range(max(0, count - RING_COLUMNS + delay), count + delay):
            ring[row, column % RING_COLUMNS] = columns[row, column]
    content = io.BytesIO()
    kept = {"embeddings": embeddings.view(count - 1, 1, 1, -1)}
    torch.save({**kept, "cache": ring.unsqueeze(0)}, content)
    return content.getvalue()


def _wav(pcm: NDArray[np.int16]) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        file.writeframes(pcm.astype("<i2").tobytes())
    return content.getvalue()


def _write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a gzipped tar that is the same for the same files."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def bank_voices(work: Path, sizes: Sizes, prompts: Sequence[int]) -> list[SpokenVoice]:
    """Take one voice prompt of each agent from the bank.

    Args:
        work: With bank and codec.
        sizes: Of the codec.
        prompts: Number of the prompt of each agent; the last one holds for those that follow.
    """
    bank, codec = Bank.open(work / "bank"), open_codec(work, sizes, torch.device("cpu"))
    voices = []
    for index, speaker in enumerate(bank.speakers_of(AGENT)):
        number = prompts[min(index, len(prompts) - 1)]
        utterance = bank.find(speaker, f"{PROMPT_KEY}{number}")
        sound = torch.from_numpy(voice_prompt(bank, utterance))
        codes = codec.encode(sound.view(1, 1, -1))[0]
        pcm = bank.audio_of(utterance)
        voices.append(SpokenVoice(bank.speakers[speaker].name, pcm, codes))
    return voices


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the checkpoint."""
    parser = argparse.ArgumentParser(description="Write the checkpoint folder.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, help="default: WORK/checkpoint")
    parser.add_argument("--sizes", choices=list(SIZES), default="small")
    parser.add_argument("--prompts", type=int, nargs="+", default=[0], help="of each agent")
    options = parser.parse_args(arguments)
    work, folder = options.work, options.out or options.work / "checkpoint"
    text_card = open_tokens(work).vocab_size()
    sizes = replace(SIZES[options.sizes], text_card=text_card)
    write_checkpoint(
        folder,
        sizes,
        load_weights(work / "lm"),
        work / "codec" / FILE_NAME,
        work / TOKENS_FILE,
        bank_voices(work, sizes, options.prompts),
    )
    total = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    print(f"{folder}: {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
