"""How many conversations fit, and a model of random weights to try it with."""

import pytest
import torch

from livekit_personaplex.engine import sizing
from livekit_personaplex.engine.sizing import choose_sizes
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.random_model import (
    NumberTokenizer,
    RandomVoices,
    parse_random_name,
    random_source,
)

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)
CONFIG = PersonaPlexConfig()


def with_free_memory(monkeypatch: pytest.MonkeyPatch, free_gb: float) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free_gb * 1e9), 0))


def test_a_cpu_steps_every_slot_by_itself() -> None:
    sizes = choose_sizes(CONFIG, device=CPU, kv_dtype=torch.float32, num_slots=3)
    assert (sizes.num_slots, sizes.group_slots) == (3, 1)
    assert choose_sizes(CONFIG, device=CPU, kv_dtype=torch.float32, num_slots=None).num_slots == 1


def test_a_gpu_takes_as_many_as_fit_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, 120)
    wide = choose_sizes(CONFIG, device=GPU, kv_dtype=torch.bfloat16, num_slots=None)
    narrow = choose_sizes(CONFIG, device=GPU, kv_dtype=FP8, num_slots=None)
    assert wide.group_slots == wide.num_slots == 70
    assert 1.8 < narrow.num_slots / wide.num_slots < 2.0


def test_too_little_memory_says_what_is_needed_and_what_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_free_memory(monkeypatch, 40)
    with pytest.raises(ConfigError, match=r"64 slots need \d+\.\d GB .* 22 would fit, .*--kv fp8"):
        choose_sizes(CONFIG, device=GPU, kv_dtype=torch.bfloat16, num_slots=64)
    with_free_memory(monkeypatch, 1)
    with pytest.raises(ConfigError, match="1 slots need .* 0 would fit"):
        choose_sizes(CONFIG, device=GPU, kv_dtype=torch.bfloat16, num_slots=None)


def test_what_is_left_free_is_not_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, sizing.RESERVE_BYTES / 1e9 + 5.1)
    sizes = choose_sizes(CONFIG, device=GPU, kv_dtype=torch.bfloat16, num_slots=None)
    assert sizes.num_slots == int(5.1e9 // sizes.slot_bytes) == 3


def test_random_models_are_named() -> None:
    assert parse_random_name("random:7b") == 0
    assert parse_random_name("random:7b:12") == 12
    assert parse_random_name("nvidia/personaplex-7b-v1") is None
    for name in ("random:", "random:8b", "random:7b:x", "random:7b:-1"):
        with pytest.raises(ConfigError, match="random:7b"):
            parse_random_name(name)


def test_random_weights_depend_on_name_and_seed_alone() -> None:
    def draw(seed: int, name: str) -> torch.Tensor:
        return random_source(CONFIG, seed).read(name, CPU, torch.float32)

    first = draw(0, "linears.0.weight")
    assert torch.equal(first, draw(0, "linears.0.weight"))
    assert not torch.equal(first, draw(1, "linears.0.weight"))
    assert not torch.equal(first, draw(0, "linears.1.weight"))
    assert float(first.std()) == pytest.approx(3 / 32, rel=0.02)


def test_a_random_model_has_words_and_voices() -> None:
    tokenizer, voices = NumberTokenizer(CONFIG), RandomVoices(CONFIG, 0)
    ids = tokenizer.encode("You are Ann")
    assert len(ids) == 3 and all(4 <= token < CONFIG.text_vocab_size for token in ids)
    assert tokenizer.piece(ids[0]) == f" {ids[0]}" and tokenizer.piece(3) == ""
    assert voices.get("RANDOM0").embeddings is not None
    with pytest.raises(ConfigError, match="RANDOM0, RANDOM1"):
        voices.get("ANN")
