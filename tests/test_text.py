"""Text: ids as the reference has them, and pieces that arrive in pieces without broken letters."""

import json
from pathlib import Path

import pytest
import sentencepiece
from safetensors.numpy import load_file

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.model.text import TextDecoder, TextTokenizer

DATA = Path(__file__).parent / "data"
MODEL = DATA / "tiny8" / "checkpoint" / "tokenizer_spm_32k_3.model"
EPAD, BOS, EOS, PAD = 0, 1, 2, 3


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(MODEL)


@pytest.fixture(scope="module")
def processor() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(MODEL))


def byte_token(processor: sentencepiece.SentencePieceProcessor, value: int) -> int:
    token: int = processor.piece_to_id(f"<0x{value:02X}>")
    assert processor.is_byte(token)
    return token


@pytest.mark.parametrize("checkpoint", ["tiny8", "tiny16"])
def test_persona_ids_equal_the_reference(checkpoint: str) -> None:
    persona = json.loads((DATA / checkpoint / "golden.json").read_text(encoding="utf-8"))["persona"]
    expected = load_file(DATA / checkpoint / "golden.safetensors")["persona.ids"].tolist()
    model = DATA / checkpoint / "checkpoint" / MODEL.name
    assert TextTokenizer(model).encode(f"<system> {persona} <system>") == expected


@pytest.mark.parametrize(
    "text",
    [
        "Hello there, how are you?",
        "naïve café",
        "日本語 and 🎉 in one line",
        "  spaces   are folded ",
        "",
        "x",
        "🎉",
    ],
)
def test_deltas_put_together_equal_sentencepiece(
    text: str, tokenizer: TextTokenizer, processor: sentencepiece.SentencePieceProcessor
) -> None:
    ids = tokenizer.encode(text)
    decoder = TextDecoder(tokenizer)
    deltas = [decoder.push(token) for token in ids]
    assert "".join(deltas) + decoder.flush() == processor.decode(ids)
    assert not any("\ufffd" in delta for delta in deltas)


def test_padding_and_control_tokens_write_nothing(tokenizer: TextTokenizer) -> None:
    decoder = TextDecoder(tokenizer)
    ids = tokenizer.encode("Hello you")
    spread = [PAD, EPAD, BOS]
    for token in ids:
        spread += [token, PAD, EPAD, EOS, tokenizer.vocab_size, -1, 32000]
    assert "".join(decoder.push(token) for token in spread) == "Hello you"


def test_character_is_held_until_its_last_byte(
    tokenizer: TextTokenizer, processor: sentencepiece.SentencePieceProcessor
) -> None:
    decoder = TextDecoder(tokenizer)
    deltas = []
    for value in "é🎉".encode():
        deltas += [decoder.push(byte_token(processor, value)), decoder.push(PAD)]
    assert deltas == ["", "", "é", "", "", "", "", "", "", "", "🎉", ""]
    assert decoder.flush() == ""


def test_broken_bytes_become_replacement_characters(
    tokenizer: TextTokenizer, processor: sentencepiece.SentencePieceProcessor
) -> None:
    decoder = TextDecoder(tokenizer)
    (word,) = (token for token in tokenizer.encode("you") if token != PAD)
    assert decoder.push(word) == "you"
    assert decoder.push(byte_token(processor, 0xC3)) == ""
    assert decoder.push(word) == "\ufffd you"
    assert decoder.push(byte_token(processor, 0xFF)) == "\ufffd"
    assert decoder.push(byte_token(processor, 0xE6)) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
    assert decoder.push(word) == " you"


def test_only_the_first_word_loses_its_space(tokenizer: TextTokenizer) -> None:
    decoder = TextDecoder(tokenizer)
    (word,) = tokenizer.encode("you")
    assert [decoder.push(word) for _ in range(3)] == ["you", " you", " you"]


def test_missing_and_broken_models_are_checkpoint_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found none"):
        TextTokenizer(tmp_path / "no.model")
    (tmp_path / "bad.model").write_bytes(b"\x00\x01garbage" * 10)
    with pytest.raises(CheckpointError, match=r"bad\.model"):
        TextTokenizer(tmp_path / "bad.model")
    (tmp_path / "empty.model").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"empty\.model"):
        TextTokenizer(tmp_path / "empty.model")
