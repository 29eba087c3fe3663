"""Mimi against the reference's recorded output, and what a slot owes its neighbours: nothing."""

import wave
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.model.config import PersonaPlexMimiConfig, load_config
from livekit_personaplex.model.mimi import Mimi, MimiState
from livekit_personaplex.model.mimi_transformer import MimiTransformer, MimiTransformerLayer
from livekit_personaplex.model.mimi_weights import load_mimi
from livekit_personaplex.model.weights import CheckpointReader

DATA = Path(__file__).parent / "data"
CPU = torch.device("cpu")
CHECKPOINTS = ["tiny8", "tiny16"]


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def load(checkpoint: str) -> Mimi:
    folder = DATA / checkpoint / "checkpoint"
    config = load_config(folder)
    with CheckpointReader(folder / config.mimi_name) as reader:
        return load_mimi(config.mimi_config, reader, device=CPU)


def golden(checkpoint: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """User frames ``[F, 1920]``, their codes ``[F, 8]`` and what these decode to, ``[F, 1920]``."""
    with wave.open(str(DATA / checkpoint / "user.wav")) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
    frames = torch.from_numpy(pcm.astype(np.float32) / 32768).view(-1, 1920)
    tensors = load_file(DATA / checkpoint / "golden.safetensors")
    return frames, tensors["mimi.codes"].t().long(), tensors["mimi.pcm_out"].view(-1, 1920)


def rms(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


def mask(*rows: bool) -> torch.Tensor:
    return torch.tensor(rows)


def copy_of(state: MimiState) -> MimiState:
    return MimiState(**{field.name: getattr(state, field.name).clone() for field in fields(state)})


def encode_alone(mimi: Mimi, frames: torch.Tensor) -> torch.Tensor:
    state = mimi.encoder.init_state(1, CPU)
    return torch.cat([mimi.encoder.encode(frame[None], state, mask(True)) for frame in frames])


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_codes_equal_the_reference_for_every_frame(checkpoint: str) -> None:
    frames, codes, _ = golden(checkpoint)
    assert torch.equal(encode_alone(load(checkpoint), frames), codes)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_decoded_speech_equals_the_reference(checkpoint: str) -> None:
    mimi = load(checkpoint)
    _, codes, pcm = golden(checkpoint)
    state = mimi.decoder.init_state(1, CPU)
    out = torch.cat([mimi.decoder.decode(frame[None], state, mask(True)) for frame in codes])
    assert out.dtype == torch.float32
    assert rms(out - pcm) < 1e-5


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_reference_is_matched_beside_rows_that_join_and_leave(checkpoint: str) -> None:
    mimi = load(checkpoint)
    frames, codes, pcm = golden(checkpoint)
    generator = torch.Generator().manual_seed(7)
    encoder, decoder = mimi.encoder.init_state(3, CPU), mimi.decoder.init_state(3, CPU)
    done = 0
    while done < len(frames):
        live = torch.rand(3, generator=generator) < 0.6
        if torch.rand((), generator=generator) < 0.2:
            encoder.reset(0)
            decoder.reset(2)
        samples = torch.randn(3, 1920, generator=generator)
        samples[1] = frames[done] if live[1] else float("nan")
        heard = mimi.encoder.encode(samples, encoder, live)
        said = torch.randint(-5, 5000, (3, 8), generator=generator)
        said[1] = codes[done]
        spoken = mimi.decoder.decode(said, decoder, live)
        if live[1]:
            assert torch.equal(heard[1], codes[done])
            assert rms(spoken[1] - pcm[done]) < 1e-4
            done += 1


def test_row_is_bit_equal_whatever_its_neighbours_do() -> None:
    mimi = load("tiny8")
    frames, codes, _ = golden("tiny8")
    outputs = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        encoder, decoder = mimi.encoder.init_state(4, CPU), mimi.decoder.init_state(4, CPU)
        spoken = []
        for frame, code in zip(frames, codes, strict=True):
            live = torch.rand(4, generator=generator) < 0.5
            live[2] = True
            samples = torch.randn(4, 1920, generator=generator)
            samples[2] = frame
            mimi.encoder.encode(samples, encoder, live)
            said = torch.randint(0, 2048, (4, 8), generator=generator)
            said[2] = code
            spoken.append(mimi.decoder.decode(said, decoder, live)[2])
        outputs.append((torch.cat(spoken), encoder.tails[2], decoder.rings[:, 2]))
    for one, other in zip(*outputs, strict=True):
        assert torch.equal(one, other)


def test_recycled_slot_starts_like_a_new_one() -> None:
    mimi = load("tiny16")
    frames, codes, _ = golden("tiny16")
    fresh_encoder, fresh_decoder = mimi.encoder.init_state(2, CPU), mimi.decoder.init_state(2, CPU)
    used_encoder, used_decoder = mimi.encoder.init_state(2, CPU), mimi.decoder.init_state(2, CPU)
    for frame in frames[:30]:
        mimi.encoder.encode(frame.repeat(2, 1), used_encoder, mask(True, True))
        mimi.decoder.decode(codes[:2], used_decoder, mask(True, True))
    used_encoder.reset(1)
    used_decoder.reset(1)
    for frame, code in zip(frames, codes, strict=True):
        both, pair = frame.repeat(2, 1), code.repeat(2, 1)
        expected = mimi.encoder.encode(both, fresh_encoder, mask(True, True))[1]
        assert torch.equal(mimi.encoder.encode(both, used_encoder, mask(True, True))[1], expected)
        spoken = mimi.decoder.decode(pair, fresh_decoder, mask(True, True))[1]
        assert torch.equal(mimi.decoder.decode(pair, used_decoder, mask(True, True))[1], spoken)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_masked_row_leaves_no_trace(side: str) -> None:
    mimi = load("tiny8")
    frames, codes, _ = golden("tiny8")
    state = getattr(mimi, side).init_state(2, CPU)

    def step(index: int, live: torch.Tensor, noise: float = 0.0) -> torch.Tensor:
        if side == "encoder":
            return mimi.encoder.encode(frames[index].repeat(2, 1) + noise, state, live)
        return mimi.decoder.decode(codes[index].repeat(2, 1), state, live)

    for index in range(21):
        step(index, mask(True, True))
    before = copy_of(state)
    for index in range(21, 40):
        step(index, mask(True, False), noise=float("nan"))
    assert torch.equal(state.positions[1], before.positions[1])
    assert torch.equal(state.tails[1], before.tails[1])
    context = mimi.encoder.config.context
    written_next = [(int(before.positions[1]) + step) % context for step in range(2)]
    kept = [entry for entry in range(context) if entry not in written_next]
    assert torch.equal(state.rings[:, 1, kept], before.rings[:, 1, kept])
    resumed = step(21, mask(False, True))[1]
    for field in fields(before):
        getattr(state, field.name).copy_(getattr(before, field.name))
    assert torch.equal(step(21, mask(False, True))[1], resumed)


def test_state_is_written_in_place_and_views_write_to_the_whole() -> None:
    mimi = load("tiny8")
    frames, codes, _ = golden("tiny8")
    encoder, decoder = mimi.encoder.init_state(5, CPU), mimi.decoder.init_state(5, CPU)
    addresses = [
        getattr(state, field.name).data_ptr()
        for state in (encoder, decoder)
        for field in fields(state)
    ]
    group = slice(2, 4)
    alone = mimi.encoder.init_state(2, CPU)
    for frame, code in zip(frames[:12], codes, strict=False):
        pcm = torch.stack((frame, frame.flip(0)))
        heard = mimi.encoder.encode(pcm, encoder.view(group), mask(True, True))
        assert torch.equal(heard, mimi.encoder.encode(pcm, alone, mask(True, True)))
        mimi.decoder.decode(code.repeat(2, 1), decoder.view(group), mask(True, True))
    assert encoder.positions.tolist() == [0, 0, 24, 24, 0]
    assert torch.equal(encoder.tails[group], alone.tails)
    assert torch.equal(encoder.rings[:, group], alone.rings)
    assert not decoder.tails[4].any()
    encoder.reset(3)
    assert encoder.positions.tolist() == [0, 0, 24, 0, 0]
    assert addresses == [
        getattr(state, field.name).data_ptr()
        for state in (encoder, decoder)
        for field in fields(state)
    ]


def small_transformer(
    context: int,
) -> tuple[MimiTransformer, MimiTransformerLayer, PersonaPlexMimiConfig]:
    config = PersonaPlexMimiConfig(
        hidden_size=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=8,
        context=context,
    )
    torch.manual_seed(9)
    layer = MimiTransformerLayer(
        norm1_weight=torch.ones(8),
        norm1_bias=torch.randn(8),
        in_proj=torch.randn(24, 8),
        out_proj=torch.randn(8, 8),
        norm2_weight=torch.ones(8),
        norm2_bias=torch.zeros(8),
        linear1=torch.randn(8, 8),
        linear2=torch.randn(8, 8),
    )
    return MimiTransformer(config, [layer], device=CPU), layer, config


def layer_by_definition(
    layer: MimiTransformerLayer, config: PersonaPlexMimiConfig, x: torch.Tensor, first: int
) -> torch.Tensor:
    """Outputs at positions ``first`` and ``first + 1`` of a whole sequence ``[T, 8]``, in float64.

    A position sees what lies in the ring once both new keys are in, but not the entry that is
    written next.
    """
    weights = {
        field.name: getattr(layer, field.name).double() for field in fields(MimiTransformerLayer)
    }
    layer = replace(layer, **weights)
    x = x.double()
    normed = F.layer_norm(x, (8,), layer.norm1_weight, layer.norm1_bias, config.norm_eps)
    query, key, value = (normed @ layer.in_proj.t()).view(-1, 3, 2, 4).unbind(1)
    angles = torch.arange(len(x)).double()[:, None] * torch.tensor([1.0, 0.01]).double()
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def rotate(part: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(part.reshape(len(x), 2, 2, 2))
        return torch.view_as_real(pairs * turn).flatten(2)

    query, key = rotate(query), rotate(key)
    outputs = []
    for position in (first, first + 1):
        seen = slice(max(0, first + 3 - config.context), position + 1)
        scores = torch.einsum("hd,thd->ht", query[position], key[seen]) / 2.0
        mixed = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), value[seen]).flatten()
        out = x[position] + mixed @ layer.out_proj.t()
        normed = F.layer_norm(out, (8,), layer.norm2_weight, layer.norm2_bias, config.norm_eps)
        outputs.append(out + F.gelu(normed @ layer.linear1.t()) @ layer.linear2.t())
    return torch.stack(outputs)


@pytest.mark.parametrize("context", [3, 6, 9, 16])
def test_a_full_ring_hides_the_entry_that_is_written_next(context: int) -> None:
    transformer, layer, config = small_transformer(context)
    state = MimiState.create(config, [0], 1, CPU)
    x = torch.randn(60, 8)
    for first in range(0, 60, 2):
        out = transformer.forward(x[None, first : first + 2], state.rings, state.positions)
        state.positions.add_(2)
        expected = layer_by_definition(layer, config, x, first)
        torch.testing.assert_close(out[0].double(), expected, rtol=1e-4, atol=1e-4)


def test_stream_stays_right_at_positions_of_hours_later() -> None:
    transformer, _, config = small_transformer(16)
    state = MimiState.create(config, [0], 1, CPU)
    late = MimiState.create(config, [0], 1, CPU)
    # Attention depends on distances only, so a stream may be begun anywhere past a full ring.
    offset = 16 * 10_000
    late.positions.fill_(offset)
    x = torch.randn(200, 8)
    for first in range(0, 200, 2):
        piece = x[None, first : first + 2]
        out = transformer.forward(piece, state.rings, state.positions)
        late_out = transformer.forward(piece, late.rings, late.positions)
        state.positions.add_(2)
        late.positions.add_(2)
        if first >= 16:
            torch.testing.assert_close(late_out, out, rtol=0.0, atol=0.02)


def test_older_codebook_names_are_read(tmp_path: Path) -> None:
    folder = DATA / "tiny8" / "checkpoint"
    config = load_config(folder)
    renames = (
        ("embedding_sum", "embed_sum"),
        ("cluster_usage", "cluster_size"),
        ("_initialized", "inited"),
    )
    tensors = load_file(folder / config.mimi_name)
    for new, old in renames:
        tensors = {name.replace(f".{new}", f".{old}"): value for name, value in tensors.items()}
    save_file(tensors, tmp_path / "mimi.safetensors")
    with CheckpointReader(tmp_path / "mimi.safetensors") as reader:
        mimi = load_mimi(config.mimi_config, reader, device=CPU)
    frames, codes, _ = golden("tiny8")
    assert torch.equal(encode_alone(mimi, frames[:10]), codes[:10])


def test_wrong_tensors_are_named(tmp_path: Path) -> None:
    folder = DATA / "tiny8" / "checkpoint"
    config = load_config(folder)
    tensors = load_file(folder / config.mimi_name)
    del tensors["encoder.model.4.block.1.conv.conv.bias"]
    tensors["surprise"] = torch.zeros(1)
    save_file(tensors, tmp_path / "mimi.safetensors")
    with (
        CheckpointReader(tmp_path / "mimi.safetensors") as reader,
        pytest.raises(CheckpointError) as caught,
    ):
        load_mimi(config.mimi_config, reader, device=CPU)
    assert "1 missing: encoder.model.4.block.1.conv.conv.bias" in str(caught.value)
    assert "1 unexpected: surprise" in str(caught.value)


def test_sizes_of_another_checkpoint_are_refused() -> None:
    folder = DATA / "tiny8" / "checkpoint"
    with (
        CheckpointReader(folder / load_config(folder).mimi_name) as reader,
        pytest.raises(CheckpointError, match="by config"),
    ):
        load_mimi(PersonaPlexMimiConfig(), reader, device=CPU)
