"""Streaming convolutions: any cutting of a stream gives what one convolution of the whole gives."""

import pytest
import torch
import torch.nn.functional as F

from livekit_personaplex.layers.conv import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvTails,
    DepthwiseUpsample,
)

BATCH, CHANNELS = 3, 5


def run_stream(
    conv: CausalConv1d | CausalConvTranspose1d | DepthwiseUpsample,
    pieces: list[torch.Tensor],
    state: torch.Tensor,
) -> torch.Tensor:
    """Run pieces ``[B, T, C]`` one after another with every stream advancing."""
    everyone = torch.ones(len(state), dtype=torch.bool)
    outputs = []
    for piece in pieces:
        tails = ConvTails(state, [conv.tail_size])
        outputs.append(conv(piece, tails))
        tails.commit(everyone)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize(("kernel", "stride"), [(7, 1), (3, 1), (4, 2), (16, 8)])
@pytest.mark.parametrize("piece_strides", [[12], [1] * 12, [1, 4, 2, 5]])
def test_streaming_convolution_equals_offline(
    kernel: int, stride: int, piece_strides: list[int]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, CHANNELS, 12 * stride)
    weight, bias = torch.randn(6, CHANNELS, kernel), torch.randn(6)
    expected = F.conv1d(F.pad(x, (kernel - stride, 0)), weight, bias, stride=stride)
    conv = CausalConv1d.from_checkpoint(weight, bias, stride=stride)
    pieces = list(x.transpose(1, 2).split([size * stride for size in piece_strides], dim=1))
    out = run_stream(conv, pieces, torch.zeros(BATCH, conv.tail_size))
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_kernel_of_one_needs_no_tail() -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(BATCH, CHANNELS, 8), torch.randn(6, CHANNELS, 1)
    conv = CausalConv1d.from_checkpoint(weight, None)
    assert conv.tail_size == 0
    out = conv(x.transpose(1, 2), ConvTails(torch.zeros(BATCH, 0), []))
    torch.testing.assert_close(out, F.conv1d(x, weight).transpose(1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("piece_lengths", [[9], [1] * 9, [2, 3, 4]])
@pytest.mark.parametrize("stride", [2, 5])
def test_streaming_transposed_convolution_equals_offline(
    stride: int, piece_lengths: list[int]
) -> None:
    torch.manual_seed(2)
    x = torch.randn(BATCH, CHANNELS, 9)
    weight, bias = torch.randn(CHANNELS, 4, 2 * stride), torch.randn(4)
    expected = F.conv_transpose1d(x, weight, bias, stride=stride)[..., : 9 * stride]
    conv = CausalConvTranspose1d.from_checkpoint(weight, bias, stride=stride)
    pieces = list(x.transpose(1, 2).split(piece_lengths, dim=1))
    out = run_stream(conv, pieces, torch.zeros(BATCH, conv.tail_size))
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("piece_lengths", [[6], [1] * 6])
def test_streaming_depthwise_upsampling_equals_offline(piece_lengths: list[int]) -> None:
    torch.manual_seed(3)
    x, weight = torch.randn(BATCH, CHANNELS, 6), torch.randn(CHANNELS, 1, 4)
    expected = F.conv_transpose1d(x, weight, stride=2, groups=CHANNELS)[..., :12]
    conv = DepthwiseUpsample.from_checkpoint(weight, stride=2)
    pieces = list(x.transpose(1, 2).split(piece_lengths, dim=1))
    out = run_stream(conv, pieces, torch.zeros(BATCH, conv.tail_size))
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_context_of_a_starting_stream_can_repeat_its_first_input() -> None:
    torch.manual_seed(4)
    x, weight = torch.randn(2, CHANNELS, 8), torch.randn(6, CHANNELS, 4)
    conv = CausalConv1d.from_checkpoint(weight, None, stride=2)
    past = torch.randn(2, 2, CHANNELS)
    out = conv(
        x.transpose(1, 2),
        ConvTails(past.flatten(1), [conv.tail_size]),
        starts=torch.tensor([True, False]),
    )
    repeated = F.conv1d(F.pad(x[:1], (2, 0), mode="replicate"), weight, stride=2)
    continued = F.conv1d(torch.cat((past[1:].transpose(1, 2), x[1:]), dim=2), weight, stride=2)
    torch.testing.assert_close(out[0], repeated[0].t(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[1], continued[0].t(), rtol=1e-4, atol=1e-5)


def test_tails_are_written_only_where_streams_advance() -> None:
    torch.manual_seed(5)
    first = CausalConv1d.from_checkpoint(torch.randn(4, 2, 3), None)
    second = CausalConvTranspose1d.from_checkpoint(torch.randn(4, 3, 4), torch.randn(3), stride=2)
    sizes = [first.tail_size, second.tail_size]
    state = torch.randn(3, sum(sizes))
    before, address = state.clone(), state.data_ptr()
    tails = ConvTails(state, sizes)
    hidden = first(torch.full((3, 6, 2), float("nan")), tails)
    second(hidden, tails)
    tails.commit(torch.tensor([False, True, False]))
    assert torch.equal(state[0], before[0])
    assert torch.equal(state[2], before[2])
    assert state[1].isnan().all()
    assert state.data_ptr() == address
