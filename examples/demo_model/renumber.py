"""Gives the codec's silence the ids that every session's prompt uses: ``... renumber WORK``.

The order of entries in a codebook means nothing, so entries may change places. Silence is steady,
and its codes become the product's constants; a 440 Hz tone is not, so the constants of the sine
become the ids of what the tone is coded as most often.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.sizes import SIZES
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.model.prompt import SILENCE_CODES, SINE_CODES

_FRAMES = 120
_OUT_OF_REACH = 100.0
_TWIN = 0.02
"""Entries nearer than this, in mean lengths of an entry, are one."""
_SETTLED = 40
"""Frames until nothing of the stream's start is in the window."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stage: rewrite the codec's file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sizes", default="small", choices=list(SIZES))
    options = parser.parse_args(arguments)
    path = options.work / "codec" / FILE_NAME
    mimi = Mimi.load(path, SIZES[options.sizes].mimi)
    renumber(mimi)
    mimi.save(path)
    for name, sound, wanted in (
        ("silence", silence(), SILENCE_CODES),
        ("sine", sine(), SINE_CODES),
    ):
        codes, steadiness = usual_codes(mimi, sound)
        print(f"{name}: {codes} in {steadiness} of the frames, wanted {list(wanted)}")
    check(mimi)


def renumber(mimi: Mimi) -> None:
    """Swap entries so that silence, and a tone where it differs, have the product's ids."""
    quiet, _ = usual_codes(mimi, silence())
    tone, _ = usual_codes(mimi, sine())
    for index, (of_quiet, of_tone) in enumerate(zip(quiet, tone, strict=True)):
        order = torch.arange(mimi.quantizer.usage.shape[1])  # new id to old id
        _swap(order, SILENCE_CODES[index], of_quiet)
        if of_tone != of_quiet:
            _swap(order, SINE_CODES[index], of_tone)
        for table in (mimi.quantizer.sums, mimi.quantizer.usage):
            table[index].copy_(table[index][order])
        _part_twins(mimi.quantizer.sums[index], SILENCE_CODES[index])


def check(mimi: Mimi) -> None:
    """Hold that silence has the product's ids in every frame.

    Raises:
        ValueError: It has not.
    """
    codes, steadiness = usual_codes(mimi, silence())
    if codes != list(SILENCE_CODES) or min(steadiness) < 1.0:
        raise ValueError(
            f"expected silence to be {list(SILENCE_CODES)} in every frame, got {codes} in "
            f"{steadiness}; renumber a codec whose training has ended"
        )


def usual_codes(mimi: Mimi, sound: Tensor) -> tuple[list[int], list[float]]:
    """Encode ``[samples]``; give each codebook's usual id and in what part of the frames it is."""
    codes = mimi.encode(sound[None, None])[0, :, _SETTLED:]
    usual = codes.mode(dim=1).values
    part = (codes == usual.unsqueeze(1)).float().mean(dim=1)
    return usual.tolist(), [round(value, 3) for value in part.tolist()]


def silence() -> Tensor:
    """Digital silence, ``[samples]``."""
    return torch.zeros(_FRAMES * FRAME_SAMPLES)


def sine() -> Tensor:
    """A tone of 440 Hz at half of full scale, ``[samples]``."""
    time = torch.arange(_FRAMES * FRAME_SAMPLES) / SAMPLE_RATE_HZ
    return 0.5 * torch.sin(2 * torch.pi * 440 * time)


def _part_twins(book: Tensor, entry: int) -> None:
    """Move entries next to this one out of reach: which of them is nearest would be chance."""
    twins = (book - book[entry]).norm(dim=1) < _TWIN * book.square().sum(dim=1).mean().sqrt()
    twins[entry] = False
    book[twins, 0] += _OUT_OF_REACH * float(book.abs().max())


def _swap(order: Tensor, new: int, old: int) -> None:
    place = int((order == old).nonzero())
    order[[new, place]] = order[[place, new]]


if __name__ == "__main__":
    main()
