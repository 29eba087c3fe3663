"""The training codec against the product's streaming one, and the parts of its training."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.demo_model.codec.batches import CropSource, Group, Line
from examples.demo_model.codec.discriminators import Discriminators
from examples.demo_model.codec.mel import SpectralDistance
from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.codec.pitch import pitch_hz
from examples.demo_model.codec.step import CodecStep, Phase, Shares, StepOptions
from examples.demo_model.codec.training import CodecTraining, Schedule
from examples.demo_model.measuring.word_error import distance, normal_words
from examples.demo_model.renumber import check, renumber
from examples.demo_model.sizes import SIZES, Sizes, product_config
from livekit_personaplex.audio import FRAME_SAMPLES
from livekit_personaplex.model.mimi import Mimi as StreamingMimi
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.prompt import SILENCE_CODES
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
        size = 0.7 ** torch.arange(TINY.mimi.num_codebooks).view(-1, 1, 1)
        mimi.quantizer.sums.copy_(torch.randn(mimi.quantizer.sums.shape) * size)
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


class FakeBank:
    """Two agents and a caller whose utterances are tones: each its own pitch, labels to match."""

    def __init__(self) -> None:
        lengths = [6, 9, 7, 8, 5, 10]
        self.frames = np.array(lengths, dtype=np.int32)
        self.start = np.cumsum([0, *lengths[:-1]]) * FRAME_SAMPLES
        parts, labels = [], []
        for index, frames in enumerate(lengths):
            time = torch.arange(frames * FRAME_SAMPLES) / 24_000
            tone = sum(
                torch.sin(2 * torch.pi * h * (100 + 25 * index) * time) / h for h in (1, 2, 3)
            )
            parts.append(0.15 * tone)
            labels.append(torch.full((4 * frames,), index + 1))
        self.audio = (torch.cat(parts) * 32767).short()
        self.labels = torch.cat(labels).short()

    def source(self, seed: int = 0, line: Line | None = None) -> CropSource:
        return CropSource(self.audio, self.labels, self, frames=5, seed=seed, line=line)


AGENTS, CALLERS = Group(3, [0, 1, 2, 3], False), Group(1, [4, 5], True)
SCHEDULE = Schedule(
    rate=6e-3, warm_steps=20, bypass_steps=4, alone_steps=2, ramp_steps=4, start_vectors=200
)


def training(
    seed: int = 0, *, judged: bool = True, schedule: Schedule | None = None
) -> CodecTraining:
    torch.manual_seed(seed)
    options = StepOptions(
        agents=3, judged=2, judged_frames=2, shares=Shares(), bfloat16=False, decay=0.9
    )
    judges = Discriminators((256,), (3,), channels=4) if judged else Discriminators((), ())
    step = CodecStep(TINY.mimi, options, judges)
    groups = {
        Phase.BYPASS: [AGENTS, CALLERS],
        Phase.WHOLE: [AGENTS, CALLERS],
        Phase.DECODER: [Group(4, [0, 1, 2, 3], False)],
    }
    source = FakeBank().source(seed)
    return CodecTraining(step, source, groups, schedule or SCHEDULE, record=False)


def test_crops_hold_utterances_pauses_and_cuts_on_the_frame_grid() -> None:
    source = FakeBank().source()
    groups = source.groups(Group(400, [0, 1, 2, 3], False))
    crops = source.draw(groups)
    heard = crops.audio.unflatten(1, (-1, FRAME_SAMPLES)).abs().amax(2) > 0.01
    spoken = (crops.labels > 0).unflatten(1, (-1, 4)).all(2)
    assert torch.equal(heard, spoken), "labels or audio do not lie on the frame grid"
    assert 0 < (~heard.any(1)).sum() < 60, "there should be a few crops of silence"
    frame = torch.arange(5)
    cut = (frame >= crops.cut[:, :1]) & (frame < crops.cut[:, 1:])
    assert cut.any(1).sum() > 10
    assert not (cut & heard).any(), "something is heard after a cut"
    assert crops.audio.abs().max() < 1.0


def test_a_callers_crops_go_through_the_line_and_an_agents_do_not() -> None:
    heard = []

    def line(track: torch.Tensor, _: torch.Generator, leak: torch.Tensor | None) -> torch.Tensor:
        heard.append((track.shape, leak is not None and leak.shape == track.shape))
        return torch.full_like(track, 0.5)

    source = FakeBank().source(line=line)
    crops = source.draw(source.groups(AGENTS, CALLERS))
    assert heard == [((1, 5 * FRAME_SAMPLES), True)]
    assert (crops.audio[3:] == 0.5).all() and not (crops.audio[:3] == 0.5).any()


def test_pitch_of_harmonic_tones_is_found_and_noise_has_none() -> None:
    time = torch.arange(24_000) / 24_000
    tones = [70.0, 120.0, 210.0, 400.0]
    voices = torch.stack(
        [sum(torch.sin(2 * torch.pi * h * f * time) / h for h in range(1, 9)) for f in tones]
    )
    found = pitch_hz(0.1 * voices)[:, 3:-3]
    for row, expected in zip(found, tones, strict=True):
        assert (row / expected - 1).abs().max() < 0.02
    assert (pitch_hz(0.1 * torch.randn(1, 24_000)) > 0).float().mean() < 0.1
    assert (pitch_hz(torch.zeros(1, 24_000)) == 0).all()


def test_distances_are_nothing_for_a_copy_and_only_the_complex_one_hears_the_phase() -> None:
    distance = SpectralDistance()
    sound = speech(2, 6)
    same, turned = distance(sound, sound), distance(sound, -sound)
    assert same.mel.max() < 1e-4 and turned.mel.max() < 1e-4
    assert turned.wave.min() > 10 * same.wave.max()


def test_training_lowers_the_losses_and_uses_the_codebooks() -> None:
    run = training(judged=False)
    sound = torch.cat([run.draw(Phase.DECODER).audio for _ in range(4)])

    def apart() -> float:
        copy = run.model.mimi.decode(run.model.mimi.encode(sound.unsqueeze(1))).squeeze(1)
        return run.model.distance(sound, copy).mel.mean().item()

    for _ in range(6):
        run.advance(0.0)
    before = apart()
    for _ in range(20):
        assert run.advance(0.0) is Phase.WHOLE
    assert apart() < 0.75 * before
    codes = run.model.mimi.encode(sound.unsqueeze(1))
    assert all(len(row.unique()) > 2 for row in codes.transpose(0, 1))


def test_the_rate_falls_until_codes_are_frozen_and_again_until_the_end() -> None:
    schedule = Schedule(warm_steps=10, freeze=0.5)
    assert schedule.factor(0, 0.0) == pytest.approx(0.1)
    assert schedule.factor(99, 0.0) == pytest.approx(1.0)
    falling = [schedule.factor(99, part / 100) for part in range(50)]
    assert falling == sorted(falling, reverse=True) and falling[-1] < 0.105
    again = [schedule.factor(99, part / 100) for part in range(50, 101)]
    assert again[0] == pytest.approx(0.6) and again == sorted(again, reverse=True)
    assert again[-1] == pytest.approx(0.02)
    assert Schedule(freeze=0.0).factor(999, 0.0) == pytest.approx(0.6)


def test_waveforms_count_less_and_less_and_then_not_at_all() -> None:
    schedule = Schedule(wave_until=0.2)
    parts = [schedule.wave_part(progress) for progress in (0.0, 0.1, 0.2, 1.0)]
    assert parts == [1.0, 0.5, 0.0, 0.0]
    run = training(judged=False)
    run.advance(0.0)
    assert run.model.wave_part.item() == 1.0
    run.advance(0.9)
    assert run.model.wave_part.item() == 0.0


def test_discriminators_learn_to_tell_copies_from_speech() -> None:
    judges = Discriminators((256,), (3,), channels=8)
    optimizer = torch.optim.AdamW(judges.parameters(), 2e-3)
    source = FakeBank().source()
    groups = source.groups(Group(8, [0, 1, 2, 3], False))
    told = 0.0
    for _ in range(40):
        real = source.draw(groups).audio[:, : 2 * FRAME_SAMPLES]
        verdict = judges(real, real + 0.05 * torch.randn_like(real))
        optimizer.zero_grad()
        verdict.discriminator.backward()
        optimizer.step()
        told = verdict.accuracy.item()
    assert told > 0.85


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole, first, second = training(), training(), training(seed=5)
    for _ in range(8):
        first.advance(0.1)
    first.save(tmp_path, 12.0)
    assert second.resume(tmp_path) == 12.0
    torch.manual_seed(0)
    for _ in range(3):
        second.advance(0.2)
    torch.manual_seed(0)
    for _ in range(3):
        first.advance(0.2)
    for (name, a), (_, b) in zip(
        first.model.state_dict().items(), second.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
    assert whole.resume(tmp_path / "nothing") == 0.0


def test_codes_stay_while_the_decoder_learns_on_and_the_file_has_its_mean(tmp_path: Path) -> None:
    run = training()
    for _ in range(6):
        run.advance(0.0)
    assert run.advance(0.7) is Phase.DECODER
    sound = speech(2, 8)
    codes = run.model.mimi.encode(sound.unsqueeze(1))
    before = run.model.mimi.decode(codes)
    for _ in range(3):
        run.advance(0.8)
    assert torch.equal(codes, run.model.mimi.encode(sound.unsqueeze(1)))
    assert not torch.equal(before, run.model.mimi.decode(codes))
    run.save(tmp_path, 0.0)
    loaded = Mimi.load(tmp_path / FILE_NAME, TINY.mimi)
    assert torch.equal(codes, loaded.encode(sound.unsqueeze(1)))
    mean = run.model.exported().decode(codes)
    assert (loaded.decode(codes) - mean).std() < 0.1 * mean.std()


def test_a_codec_trained_before_keeps_its_codes_while_its_decoder_learns(tmp_path: Path) -> None:
    before = random_mimi()
    before.save(tmp_path / FILE_NAME)
    loaded = Mimi.load(tmp_path / FILE_NAME, TINY.mimi)
    sound = speech(2, 8)
    codes = loaded.encode(sound.unsqueeze(1))
    run = training(seed=9, schedule=Schedule(bypass_steps=0, freeze=0.0, warm_steps=1))
    run.begin_with(loaded)
    at_first = run.model.exported().decode(codes)
    assert torch.equal(at_first, loaded.decode(codes))
    for _ in range(3):
        assert run.advance(0.0) is Phase.DECODER
    assert torch.equal(codes, run.model.exported().encode(sound.unsqueeze(1)))
    assert not torch.equal(at_first, run.model.exported().decode(codes))


def test_a_codec_trained_before_goes_on_from_its_codebooks() -> None:
    before = random_mimi()
    run = training(seed=9, schedule=Schedule(bypass_steps=0, freeze=1.0))
    run.begin_with(before)
    assert run.advance(0.0) is Phase.WHOLE
    moved = (run.model.mimi.quantizer.codebooks - before.quantizer.codebooks).norm(dim=2)
    assert 0 < moved.mean() < 0.1 * before.quantizer.codebooks.norm(dim=2).mean()


def test_renumbered_silence_has_the_products_codes_and_sounds_the_same(tmp_path: Path) -> None:
    mimi = random_mimi()
    sound = speech(1, 8).unsqueeze(1)
    before = mimi.decode(mimi.encode(sound))
    renumber(mimi)
    check(mimi)
    after = mimi.decode(mimi.encode(sound))
    assert (after - before).std() < 0.1 * before.std()
    product = stored(mimi, tmp_path)
    with torch.inference_mode():
        codes = stream_codes(product, torch.zeros(1, 50 * FRAME_SAMPLES))
    assert codes[0, :, -1].tolist() == list(SILENCE_CODES)


def test_renumbering_hangs_on_the_encoder_alone() -> None:
    early = random_mimi()
    late = Mimi(TINY.mimi)
    late.load_state_dict(early.state_dict())
    with torch.no_grad():
        for parameter in late.decoder_parameters().values():
            parameter.mul_(1.5)
    renumber(early)
    renumber(late)
    sound = speech(1, 8).unsqueeze(1)
    assert torch.equal(early.encode(sound), late.encode(sound))


def test_word_error_counts_wrong_missing_and_added_words() -> None:
    assert distance("the price is ten".split(), "a price is is ten".split()) == 2
    assert distance([], ["a"]) == 1
    assert normal_words("It's 10 o'clock, Emma.") == ["it's", "o'clock", "emma"]
