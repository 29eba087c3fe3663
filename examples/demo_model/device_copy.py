"""Copies from the host that the host does not wait for."""

from typing import Any

import torch
from numpy.typing import NDArray


def to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Queue the copy of an array to a device; on a GPU through pinned memory."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
