"""Reads of an array of tiles: the position among all samples, and the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsora.nn.tiles.mapped_memory import mapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pulsora.nn.tiles.batch_shard import BatchShard
    from pulsora.tile.arrays import Array

__all__ = ["ReadPosition", "as_taken", "for_tile", "parameter_for_tile", "read", "require_whole"]


class ReadPosition(NamedTuple):
    """Position of a read of all tiles of an array among all samples.

    Attributes:
        shard: The rows that are read, among the rows of all processes.
        numbers: The number of the mini-batch's first sample in each tile, for a read that is
            repeated; None for any other read.
        evaluation: Whether the read is part of an evaluation, which counts no samples of training.
    """

    shard: BatchShard
    numbers: list[int] | None = None
    evaluation: bool = False


def read(
    by: Callable[..., object],
    lines: Tensor,
    outputs: int,
    position: ReadPosition,
    *,
    is_temporary: bool = False,
) -> Tensor:
    """Reads contiguous rows without a gradient, mini-batch after mini-batch, into a new tensor.

    Wrapping a tile's own buffer would cost more than the read. A temporary result is dropped before
    the next read.
    """
    shape = (len(lines), outputs)
    out = mapped(lines, *shape) if is_temporary else lines.new_empty(shape)
    shard = position.shard
    first, of = shard.first, shard.of
    for into, given in zip(shard.split(out), shard.split(lines), strict=True):
        by(as_taken(given), as_taken(into), first=first, of=of, evaluation=position.evaluation)
    return out


def for_tile(values: Tensor) -> Array:
    """Returns contiguous values without their gradient, on the CPU as an array of NumPy."""
    return as_taken(values.detach().contiguous())


def parameter_for_tile(values: Tensor) -> Array:
    """Returns the detached values of a parameter as `for_tile`, in single precision.

    Its memory can still be resized, which torch refuses after `numpy()`, and which
    `torch.distributed.fsdp` does.

    Raises:
        RuntimeError: If this process has a part of the parameter alone (`require_whole`).
    """
    require_whole(values)
    values = values.float().contiguous()
    return np.from_dlpack(values) if values.is_cpu else values


def require_whole(weight: Tensor) -> None:
    """Raises RuntimeError for a weight that is sharded over processes."""
    if hasattr(weight, "full_tensor"):  # a DTensor
        raise RuntimeError(
            "the weight is sharded over processes (torch.distributed.fsdp), but tiles take it "
            "whole: program and drift a model whose parts were gathered by unshard(), and train "
            "cells that follow a weight (MixedPrecisionConfig) by DistributedDataParallel"
        )


def as_taken(values: Tensor) -> Array:
    """Returns values as a tile takes them: an array of NumPy takes a tenth of DLPack's time."""
    return values.numpy() if values.is_cpu else values
