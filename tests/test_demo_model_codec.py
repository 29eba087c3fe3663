"""The training codec against the product's streaming one, and the parts of its training."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.demo_model.mimi import FILE_NAME, Mimi
from examples.demo_model.sizes import SIZES, Sizes, product_config
from livekit_personaplex.model.mimi import Mimi as StreamingMimi
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.weights import CheckpointReader

CPU = torch.device("cpu")
TINY = SIZES["tiny"]
FRAMES = 14
"""28 positions: the tiny window holds 16."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def random_mimi(sizes: Sizes = TINY) -> Mimi:
    """Random weights that matter: layer scales of one, codebooks as wide as the latent."""
    mimi = Mimi(sizes.mimi)
    with torch.no_grad():
        for name, parameter in mimi.named_parameters():
            if "scale" in name or "norm" in name:
                parameter.uniform_(0.5, 1.0)
            if name.endswith("bias"):
                parameter.uniform_(-0.1, 0.1)
        mimi.quantizer.start(mimi.latent(speech(80, 80)).flatten(0, 1), rounds=1)
    mimi.fix_encoder()
    return mimi


def speech(clips: int, frames: int) -> torch.Tensor:
    """``[clips, frames * 1920]``: noise whose loudness and colour wander."""
    noise = torch.randn(clips, frames * 1920)
    return noise * torch.rand(clips, frames).repeat_interleave(1920, dim=1) * 0.3


def stored(mimi: Mimi, folder: Path, sizes: Sizes = TINY) -> StreamingMimi:
    mimi.save(folder / FILE_NAME)
    with CheckpointReader(folder / FILE_NAME) as reader:
        return load_mimi(product_config(sizes).mimi_config, reader, device=CPU)


def stream_codes(product: StreamingMimi, pcm: torch.Tensor) -> torch.Tensor:
    state = product.encoder.init_state(len(pcm), CPU)
    advance = torch.ones(len(pcm), dtype=torch.bool)
    frames = pcm.unflatten(1, (-1, 1920)).unbind(1)
    return torch.stack([product.encoder.encode(f, state, advance) for f in frames], dim=2)


def stream_pcm(product: StreamingMimi, codes: torch.Tensor) -> torch.Tensor:
    state = product.decoder.init_state(len(codes), CPU)
    advance = torch.ones(len(codes), dtype=torch.bool)
    return torch.cat([product.decoder.decode(c, state, advance) for c in codes.unbind(2)], dim=1)


@torch.inference_mode()
def test_codes_and_sound_equal_the_products_stream_past_the_window(tmp_path: Path) -> None:
    product = stored(random_mimi(), tmp_path)
    mimi = Mimi.load(tmp_path / FILE_NAME, TINY.mimi)
    pcm = speech(2, FRAMES)
    codes = mimi.encode(pcm.unsqueeze(1))
    assert torch.equal(codes, stream_codes(product, pcm))
    assert codes.unique().numel() > 50
    sound = mimi.decode(codes).squeeze(1)
    assert sound.std() > 1e-3
    torch.testing.assert_close(sound, stream_pcm(product, codes), atol=1e-5, rtol=0)
    whole = random_mimi(replace(TINY, mimi=replace(TINY.mimi, context=2 * FRAMES + 2)))
    assert not torch.equal(codes, whole.encode(pcm.unsqueeze(1))), "the window was never full"
