"""Text in and out: personas to token ids, and the agent's tokens to text as they come."""

import codecs
from pathlib import Path
from typing import Protocol

import sentencepiece

from livekit_personaplex.errors import CheckpointError

EPAD_TOKEN = 0
PAD_TOKEN = 3
_SPACE = "\u2581"


class TextTokenizer:
    """The model's SentencePiece vocabulary. May be used from any thread."""

    def __init__(self, path: Path | str) -> None:
        """Load a ``.model`` file.

        Raises:
            CheckpointError: The file is missing or no SentencePiece model.
        """
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(f"expected a SentencePiece model at {path}, found none")
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except (RuntimeError, OSError) as error:
            raise CheckpointError(
                f"{path} is no SentencePiece model ({error}); download it again"
            ) from error

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Split ``text`` into token ids, as the reference does; empty text has none."""
        return [int(token) for token in self._processor.encode(text)]

    def piece(self, token: int) -> str | bytes:
        """Return what a token writes.

        Args:
            token: Any number; one outside the vocabulary writes nothing.

        Returns:
            Text, or one byte of a character that the vocabulary has no piece for. PAD, EPAD and
            control tokens give empty text.
        """
        processor = self._processor
        if token in (EPAD_TOKEN, PAD_TOKEN) or not 0 <= token < processor.vocab_size():
            return ""
        piece = str(processor.id_to_piece(token))
        if processor.is_byte(token):
            return bytes([int(piece[3:-1], 16)])
        if processor.is_control(token) or processor.is_unknown(token):
            return ""
        return piece.replace(_SPACE, " ")


class Pieces(Protocol):
    """What every token of a vocabulary writes."""

    def piece(self, token: int) -> str | bytes:
        """Return text, or one byte of a character."""


class TextDecoder:
    """Turns one session's text tokens into text, piece by piece, never half a character.

    Put together, its output is what SentencePiece gives for the whole: the space that begins the
    first word is left out.
    """

    def __init__(self, tokenizer: Pieces) -> None:
        """Begin a session's text."""
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._has_text = False

    def push(self, token: int) -> str:
        """Take the next token; returns the text that is complete with it, often none.

        Bytes that are no UTF-8 become U+FFFD.
        """
        piece = self._tokenizer.piece(token)
        if isinstance(piece, bytes):
            return self._without_first_space(self._bytes.decode(piece))
        if not piece:
            return ""
        return self._without_first_space(self._end_of_bytes() + piece)

    def flush(self) -> str:
        """End the text; returns U+FFFD for a character that was never completed, else nothing."""
        return self._end_of_bytes()

    def _end_of_bytes(self) -> str:
        rest = self._bytes.decode(b"", final=True)
        self._bytes.reset()
        return rest

    def _without_first_space(self, text: str) -> str:
        if self._has_text:
            return text
        text = text.lstrip(" ")
        self._has_text = bool(text)
        return text
