"""Messages of tensors between processes, straight to their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

__all__ = ["average_gradients", "gather_equal"]


def gather_equal(
    tensors: Sequence[Any], size: int, group: dist.ProcessGroup | None
) -> Callable[[], Sequence[Any]]:
    """Begins to gather as many rows of each process; the returned function waits for them.

    Args:
        tensors: Matrices, of which each process gives as many rows; None for no message.
        size: Number of processes.
        group: The processes.
    """
    mine = [None if each is None else each.detach().contiguous() for each in tensors]
    whole = [
        None if each is None else each.new_empty(size * len(each), *each.shape[1:]) for each in mine
    ]
    works = [
        dist.all_gather_into_tensor(everyone, each, group=group, async_op=True)
        for everyone, each in zip(whole, mine, strict=True)
        if each is not None
    ]

    def wait() -> Sequence[Any]:
        for work in works:
            work.wait()
        mine.clear()  # was read until here
        return whole

    return wait


def average_gradients(
    parameters: Sequence[nn.Parameter], size: int, group: dist.ProcessGroup | None
) -> None:
    """Averages gradients over the processes, in one message for each type of numbers.

    Every process must have gradients of the same parameters.
    """
    found = [each.grad for each in parameters if each.grad is not None]
    for kind in dict.fromkeys(gradient.dtype for gradient in found):
        some = [gradient for gradient in found if gradient.dtype == kind]
        means = torch.cat([gradient.reshape(-1) for gradient in some]).div_(size)
        dist.all_reduce(means, group=group)
        begin = 0
        for gradient in some:
            gradient.copy_(means[begin : begin + gradient.numel()].view_as(gradient))
            begin += gradient.numel()
