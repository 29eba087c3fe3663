"""Reads safetensors one tensor at a time, straight to the target device and dtype.

Knows the file format and how to say what is wrong with a file; which tensors a network needs is
known by ``lm_weights`` and ``mimi_weights``. While loading, memory holds what was read so far plus
one tensor: the file itself is only mapped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open

from livekit_personaplex.errors import CheckpointError

Shape = tuple[int, ...]

_NUM_LISTED = 8
_FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
_STORED_SETS = (8, 16)


class TensorSource(Protocol):
    """Named tensors that can be read one at a time."""

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors there are."""

    def check(
        self, expected: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None
    ) -> None:
        """Raise CheckpointError unless the expected tensors are there, and only allowed ones."""

    def read(self, name: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Read one tensor to ``device`` as ``dtype``, into memory of its own."""


class CheckpointReader:
    """One open safetensors file. A context manager; not thread-safe."""

    def __init__(self, path: Path | str) -> None:
        """Map the file and read its header.

        Raises:
            CheckpointError: The file is missing, cut short, or no safetensors file.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"expected a safetensors file at {self.path}, found none")
        try:
            self._file = safe_open(self.path, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{self.path} is no complete safetensors file ({error}); download it again"
            ) from error
        self._names = frozenset(self._file.keys())

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors in the file."""
        return self._names

    def __enter__(self) -> "CheckpointReader":
        """Return the reader itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unmap the file; tensors that were read stay valid."""
        self._file.__exit__(exc_type, exc, traceback)

    def shape(self, name: str) -> Shape:
        """Return the stored shape of a tensor that is in ``names``."""
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Read one tensor into memory of its own.

        Args:
            name: Original tensor name.
            device: Where the tensor goes; the copy to a GPU is waited for.
            dtype: What it becomes there.

        Returns:
            A contiguous tensor with the stored shape.

        Raises:
            CheckpointError: The file does not have the tensor, or holds it quantised.
        """
        if name not in self._names:
            raise CheckpointError(f"{self.path} has no tensor {name}")
        stored = self._file.get_slice(name).get_dtype()
        if stored not in _FLOAT_DTYPES:
            raise CheckpointError(
                f"{self.path}: {name} is stored as {stored}, expected one of "
                f"{', '.join(_FLOAT_DTYPES)}; quantised checkpoints are not supported"
            )
        mapped: torch.Tensor = self._file.get_tensor(name)
        moved = mapped.to(device).to(dtype)
        # What still lies in the mapped file would be lost, or end the process, with the file.
        return moved.clone() if moved.data_ptr() == mapped.data_ptr() else moved

    def check(
        self, expected: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None
    ) -> None:
        """Compare names and shapes with what the configuration asks for; reads no tensor.

        Args:
            expected: Tensors that must be there.
            optional: Tensors that may be there as well.

        Raises:
            CheckpointError: Names what is missing, unexpected and misshaped, in one message.
        """
        allowed = {**(optional or {}), **expected}
        missing = sorted(expected.keys() - self._names, key=_natural)
        unexpected = sorted(self._names - allowed.keys(), key=_natural)
        misshaped = [
            f"{name} is {list(self.shape(name))} in the file and {list(allowed[name])} by config"
            for name in sorted(allowed.keys() & self._names, key=_natural)
            if self.shape(name) != tuple(allowed[name])
        ]
        faults = [
            fault
            for what, names in (
                ("missing", missing),
                ("unexpected", unexpected),
                ("misshaped", misshaped),
            )
            if (fault := _list_some(what, names))
        ]
        if faults:
            raise CheckpointError(
                f"{self.path} does not hold the tensors that config.json asks for: "
                f"{'. '.join(faults)}. Check that both belong to the same checkpoint."
            )


def stored_dep_q(names: frozenset[str]) -> int:
    """Count the depformer's stored inner-step sets, which need not be what the config says.

    The reference fills sets 8 to 15 with copies when a file has 8, so its configs say 16.

    Raises:
        CheckpointError: It is neither 8 nor 16.
    """
    stored = sum(name.startswith("depformer_in.") for name in names)
    if stored not in _STORED_SETS:
        raise CheckpointError(
            f"expected 8 or 16 inner-step sets (depformer_in.*.weight), found {stored}"
        )
    return stored


def _natural(name: str) -> list[tuple[int, str]]:
    """Order numbered parts by their value: layers.2 before layers.10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _list_some(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(names[:_NUM_LISTED])
    more = f" and {len(names) - _NUM_LISTED} more" if len(names) > _NUM_LISTED else ""
    return f"{len(names)} {what}: {listed}{more}"
