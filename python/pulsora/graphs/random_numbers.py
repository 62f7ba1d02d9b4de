"""States of generators of random numbers, which tell what a step has drawn."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor

__all__ = ["of_host", "random_numbers"]


def random_numbers(batch: Tensor) -> tuple[Hashable, Hashable] | None:
    """Returns what differs after draws on the GPU, and after draws of the host, beside tiles.

    A recorded step draws anew on the GPU. Choices by numbers of the host, such as layers that are
    left out, would be constants of a graph. None for a batch on the CPU.
    """
    if not batch.is_cuda:
        return None
    return torch.cuda.default_generators[batch.device.index or 0].get_offset(), of_host()


def of_host() -> Hashable:
    """Returns the states of the global generators of torch (on the CPU), NumPy and Python."""
    of_numpy: Any = np.random.get_state()  # noqa: NPY002 - models may use it
    name, words, *place = of_numpy
    of_torch = torch.get_rng_state().numpy().tobytes()
    return of_torch, name, words.tobytes(), *place, random.getstate()
