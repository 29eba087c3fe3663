"""The demo model's checkpoint: the product loads it and says what the layers in training do."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from examples.demo_model.codec.mimi import FILE_NAME, Mimi
from examples.demo_model.export import SpokenVoice, write_checkpoint
from examples.demo_model.lm.columns import delay_frames, prompt_frames
from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.lm.names import load_product_tensors, product_tensors
from examples.demo_model.measuring.free_run import Request, hold_calls, open_core
from examples.demo_model.sizes import SIZES, Sizes, TemporalSizes
from livekit_personaplex.audio import pcm16_to_float, split_frames
from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.model.audio_file import VOICE_LOUDNESS_LUFS, set_loudness
from livekit_personaplex.model.personaplex import encode_speech
from livekit_personaplex.model.prompt import build_prompt, tag_persona
from livekit_personaplex.model.text import TextTokenizer
from livekit_personaplex.sampling import Sampling
from tests.conformance import DATA

TOKENS = DATA / "tiny8" / "checkpoint" / "tokenizer_spm_32k_3.model"
CPU = torch.device("cpu")
LIVE_STEPS = 51
PERSONA = "You are a wise and friendly teacher."


@dataclass(frozen=True)
class Exported:
    """A checkpoint of random weights."""

    folder: Path
    sizes: Sizes
    core: EngineCore


def speech(seconds: float) -> NDArray[np.int16]:
    """Whole frames of a hum with an unsteady pitch."""
    time_s = np.arange(round(seconds / 0.08) * 1920) / 24_000
    hum = np.sin(2 * np.pi * (150 * time_s + 8 * np.sin(3 * time_s))) * (1 + np.sin(11 * time_s))
    return (6000 * hum).astype(np.int16)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("export")
    sizes = replace(
        SIZES["tiny"],
        temporal=TemporalSizes(width=32, heads=2, layers=3, context=200),
        text_card=TextTokenizer(TOKENS).vocab_size,
    )
    torch.manual_seed(0)
    codec = Mimi(sizes.mimi)
    with torch.no_grad():
        codec.quantizer.sums.normal_()
        codec.quantizer.usage.fill_(1.0)
    codec.save(folder / FILE_NAME)
    codec = Mimi.load(folder / FILE_NAME, sizes.mimi)
    pcm = speech(2.4)
    loud = set_loudness(pcm16_to_float(pcm), VOICE_LOUDNESS_LUFS, name="V")
    codes = codec.encode(torch.from_numpy(loud).view(1, 1, -1))[0]
    tensors = {**product_tensors(TrainingLm(sizes)), "heard_head": torch.zeros(1)}
    out = folder / "checkpoint"
    voices = [SpokenVoice("V", pcm, codes)]
    write_checkpoint(out, sizes, tensors, folder / FILE_NAME, TOKENS, voices)
    return Exported(out, sizes, open_core(out, CPU, slots=2))


def test_the_product_says_what_the_training_layers_do(exported: Exported) -> None:
    core, text_card = exported.core, exported.sizes.text_card
    caller = speech(LIVE_STEPS * 0.08)
    greedy = Sampling(greedy=True, seed=0)
    (said,) = hold_calls(core, [Request(PERSONA, "V.wav", greedy, caller)])
    heard = np.stack([pcm16_to_float(frame) for frame in split_frames(caller)])
    user = encode_speech(core.model.mimi.encoder, heard, CPU)
    voice = core.model.voices.get("V.wav").codes
    assert voice is not None
    persona = core.model.tokenizer.encode(tag_persona(PERSONA))
    prompt = prompt_frames(torch.from_numpy(voice), persona)
    # a step gives out the frame before it: the first one is the prompt's last
    live = torch.from_numpy(said.tokens[:, 1:])
    frames = torch.cat((live, torch.from_numpy(user[:, : live.shape[1]])))
    columns = delay_frames(torch.cat((prompt, frames), 1), text_card)
    net = TrainingLm(exported.sizes)
    load_product_tensors(net, load_file(exported.folder / "model.safetensors"))
    first = prompt.shape[1]
    with torch.inference_mode():
        positions = torch.arange(columns.shape[1] - 1).unsqueeze(0)
        hidden, _ = net.trunk(columns[None, :, :-1], positions)
        text = net.text_logits(hidden)[0].argmax(-1)
        codes = net.depth(hidden[0], columns[:9, 1:].T).argmax(-1)
    assert torch.equal(text[first - 1 :], columns[0, first:])
    assert torch.equal(codes[0, first - 1 :], columns[1, first:])
    assert torch.equal(codes[1:, first:], columns[2:9, first + 1 :])
    assert len(set(columns[1, first:].tolist())) > 2, "all codes are alike: nothing was compared"


def test_a_recording_and_its_saved_form_open_the_same_call(exported: Exported) -> None:
    core = exported.core
    saved, spoken = (
        build_prompt(core.model.config, core.model.voices.get(name), [5, 6])
        for name in ("V.pt", "V.wav")
    )
    given = len(saved.embeddings)
    assert given == 29 and saved.first_step == spoken.first_step
    np.testing.assert_array_equal(saved.columns[given:], spoken.columns[given:])
    np.testing.assert_array_equal(saved.tokens, spoken.tokens)
    embedded = core.model.lm.embed(torch.from_numpy(spoken.columns[:given]))
    torch.testing.assert_close(torch.from_numpy(saved.embeddings), embedded)


def test_everyone_may_read_the_checkpoint(exported: Exported) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in exported.folder.iterdir())


def test_weights_of_other_sizes_are_not_exported(exported: Exported, tmp_path: Path) -> None:
    tensors = product_tensors(TrainingLm(exported.sizes))
    del tensors["linears.3.weight"]
    codec = exported.folder / FILE_NAME
    with pytest.raises(ValueError, match=r"linears\.3\.weight"):
        write_checkpoint(tmp_path, exported.sizes, tensors, codec, TOKENS, [])
