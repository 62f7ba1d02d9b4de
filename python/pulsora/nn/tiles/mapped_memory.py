"""Tensors of single precision in memory pages of their own."""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["mapped"]

_LEAST_MAPPED = 1 << 20
"""Least bytes of memory of its own, in which page faults cost little beside the work."""


def mapped(like: Tensor, *shape: int) -> Tensor:
    """Returns a new tensor on the device of `like`, whose memory on the CPU is in its own pages.

    The pages return to the system when the tensor is dropped. The heap of the C library keeps the
    place of a large tensor, and mostly cannot use it for the next one of the same size, because
    smaller tensors that outlast it, and the alignment, take some of the place.
    """
    size = math.prod(shape) * torch.float32.itemsize
    if not like.is_cpu or size < _LEAST_MAPPED:
        return like.new_empty(shape, dtype=torch.float32)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)
