"""Callers' lines of the demo model: batched, each row its own, and what a telephone leaves."""

import torch

from examples.demo_model.talk.line import _Draw, _fft_size, _filter, _mu_law, _noise, _room, degrade

N = 24000


def speech(rows: int) -> torch.Tensor:
    """Bursts of a tone with harmonics, pauses between."""
    t = torch.arange(N) / 24000
    tone = sum(torch.sin(2 * torch.pi * 150 * k * t) / k for k in range(1, 60))
    return (0.09 * tone * ((t * 4).long() % 2)).expand(rows, N).contiguous()


def made(rows: int, seed: int = 0) -> torch.Tensor:
    return degrade(speech(rows), torch.Generator().manual_seed(seed), speech(rows).flip(1))


def test_lines_are_finite_bounded_and_unlike() -> None:
    lines = made(32)
    assert lines.shape == (32, N) and lines.isfinite().all() and lines.abs().max() <= 1
    assert torch.equal(lines, made(32)) and not torch.equal(lines, made(32, seed=1))
    levels = lines.square().mean(1).sqrt()
    assert levels.max() > 4 * levels.min()


def test_a_row_does_not_hear_the_others() -> None:
    track = speech(4)
    quiet = track.clone()
    quiet[1:] = 0
    heard = [degrade(x, torch.Generator().manual_seed(3), None)[0] for x in (track, quiet)]
    torch.testing.assert_close(heard[0], heard[1], atol=1e-6, rtol=0)


def test_some_silent_callers_stay_digitally_silent() -> None:
    lines = degrade(torch.zeros(64, N), torch.Generator().manual_seed(0), None)
    silent = (lines.abs().amax(1) < 1e-4).float().mean()
    assert 0.05 < silent < 0.6


def test_speech_survives_in_place() -> None:
    clean, lines = speech(64), made(64)
    envelope = torch.nn.functional.avg_pool1d(clean.abs().unsqueeze(1), 1920)[:, 0]
    heard = torch.nn.functional.avg_pool1d(lines.abs().unsqueeze(1), 1920)[:, 0]
    match = [
        float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in zip(envelope, heard, strict=True)
    ]
    assert sorted(match)[6] > 0.5


def test_a_leak_is_heard_in_some_rows() -> None:
    silence = torch.zeros(64, N)
    heard = degrade(silence, torch.Generator().manual_seed(5), speech(64))
    alone = degrade(silence, torch.Generator().manual_seed(5), silence)
    share = ((heard - alone).abs().amax(1) > 1e-4).float().mean()
    assert 0.1 < share < 0.6


def test_telephones_are_narrow() -> None:
    white = torch.randn(64, N, generator=torch.Generator().manual_seed(1)) * 0.09
    heard = _filter(white, _Draw(torch.Generator().manual_seed(2), white.device, 64))
    power = torch.fft.rfft(heard).abs().square()
    high, low = power[:, 6000:].mean(1), power[:, 1000:3000].mean(1)
    narrow = (high < 1e-3 * low).float().mean()
    assert 0.1 < narrow < 0.5


def test_mu_law_keeps_soft_sounds() -> None:
    soft = torch.linspace(-0.02, 0.02, 101)
    assert (_mu_law(soft) - soft).abs().max() < 0.001
    assert len(_mu_law(torch.linspace(-1, 1, 20000)).unique()) <= 255


def test_noise_has_unit_level_and_rooms_keep_the_onset() -> None:
    draw = _Draw(torch.Generator().manual_seed(4), torch.device("cpu"), 8)
    torch.testing.assert_close(_noise(N, draw).square().mean(1), torch.ones(8))
    impulse = torch.zeros(8, N)
    impulse[:, 5000] = 1.0
    rung = _room(impulse, draw)
    assert (rung[:, :5000].abs() < 1e-4).all() and (rung[:, 5000] > 0.5).all()


def test_transforms_have_small_factors() -> None:
    for length in (1920, 24000, 1920 * 311, 1920 * 375):
        size = _fft_size(length)
        assert length < size < 1.35 * length + 4800
        for factor in (2, 3, 5):
            while size % factor == 0:
                size //= factor
        assert size == 1
