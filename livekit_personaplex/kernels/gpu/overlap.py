"""Starting a kernel while the one before it still runs (programmatic dependent launch).

A kernel launched so may read weights at once; before it reads or writes anything else it waits for
the kernel before it, and with that for all earlier ones. So every kernel launched so must wait.
"""

from functools import cache
from typing import Any

import torch
import triton.language as tl


def can_overlap(x: torch.Tensor) -> bool:
    """Whether kernels on the device of ``x`` may start early: Hopper and newer."""
    return x.is_cuda and _device_can_overlap(x.device)


def overlap_options(overlap: bool) -> dict[str, Any]:
    """Launch options of a kernel that starts early."""
    return {"launch_pdl": True} if overlap else {}


@cache
def _device_can_overlap(device: torch.device) -> bool:
    has_wait = hasattr(tl.extra.cuda, "gdc_wait")
    return has_wait and torch.cuda.get_device_capability(device) >= (9, 0)
