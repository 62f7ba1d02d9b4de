"""Messages of tensors between processes, straight to their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from pulsora.nn.tiles.batch_shard import BatchShard

__all__ = ["average_gradients", "gather_equal", "gather_padded"]


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


def gather_padded(
    tensors: Sequence[Any], shard: BatchShard, number: int, group: dist.ProcessGroup | None
) -> Callable[[], tuple[list[Any], Tensor]]:
    """Begins to gather the rows of a batch, in one message for a whole layer.

    Args:
        tensors: Matrices, or what is no tensor and not sent.
        shard: The rows of each process.
        number: A number that goes with the message.
        group: The processes.

    Returns:
        A function that waits, and returns whole matrices and the numbers of all processes.
    """
    present = [each for each in tensors if isinstance(each, torch.Tensor)]
    widths = [each.shape[1] for each in present]
    most = max(shard.counts) * shard.steps
    # Padded on processes with fewer rows.
    message = present[0].new_zeros(most * sum(widths) + 1)
    message[-1] = number
    begins = [most * sum(widths[:i]) for i in range(len(widths))]
    for begin, each in zip(begins, present, strict=True):
        message[begin : begin + each.numel()] = each.detach().reshape(-1)
    everyone = message.new_empty(len(shard.counts), len(message))
    work = dist.all_gather(list(everyone), message, group=group, async_op=True)

    def wait() -> tuple[list[Any], Tensor]:
        work.wait()
        whole = iter(
            shard.concatenated(
                [
                    row[begin : begin + count * shard.steps * width].view(-1, width)
                    for row, count in zip(everyone, shard.counts, strict=True)
                ]
            )
            for begin, width in zip(begins, widths, strict=True)
        )
        return [None if each is None else next(whole) for each in tensors], everyone[:, -1]

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
