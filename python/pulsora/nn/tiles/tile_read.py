"""Where the reads of an array of tiles begin, and how they are made."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from pulsora.nn.tiles.batch_shard import BatchShard
from pulsora.nn.tiles.checkpointing import repeated_read, repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.tile import Tile
    from pulsora.tile.arrays import Array

__all__ = ["ReadPosition", "begin_read", "bias_gradient", "for_tile", "forward_of", "read"]


class ReadPosition(NamedTuple):
    """Where a read of all tiles of an array begins.

    Attributes:
        shard: The rows that are read, among those of all processes.
        numbers: For a read that counts no samples, because it is repeated or an evaluation, the number
            of the mini-batch's first sample in each tile; None for any other read.
    """

    shard: BatchShard
    numbers: list[int] | None = None


def begin_read(array: TileArray, shape: Sequence[int], steps: int = 1) -> ReadPosition:
    """Where a read of x [*shape, features] begins, which holds so many mini-batches, one below the other.

    Where a checkpointed part of a model runs again, the read is the one it was (`replayed_reads`). An
    evaluation by one of several processes counts no samples, since the others may make another.
    """
    whole = BatchShard((math.prod(shape),))
    shard = None if repeats() else array.process_group.shard(shape, steps)
    repeated: ReadPosition | None = repeated_read(
        array, lambda: ReadPosition(shard or whole, _counted(array))
    )
    if repeated is not None:
        return repeated
    if shard is not None:
        return ReadPosition(shard)
    counted = _counted(array)
    at, samples = array.evaluated
    begun = samples if at == counted else 0
    array.evaluated = counted, begun + math.prod(shape)
    return ReadPosition(whole, [number + begun for number in counted])


def forward_of(array: TileArray, position: ReadPosition) -> Iterator[Callable[..., object]]:
    """For each tile, the function that reads mini-batch after mini-batch, with arguments as `Tile.forward`."""
    for index, tile in enumerate(array):
        if position.numbers is None:
            yield tile.forward
        else:
            yield _uncounted(tile, position.numbers[index], position.shard)


def _uncounted(tile: Tile, begun: int, shard: BatchShard) -> Callable[..., object]:
    starts = itertools.count(begun + shard.first, shard.of)

    def again(lines: Array, out: Array, **_: int) -> None:
        tile._core.forward_again(lines, out, next(starts), shard.of)  # noqa: SLF001 - of this package

    return again


def read(by: Callable[..., object], lines: Tensor, outputs: int, shard: BatchShard) -> Tensor:
    """What a tile reads of lines without gaps, in memory of torch's own: adopting a tile's costs more than the read."""
    out = lines.new_empty(len(lines), outputs)
    first, of = shard.first, shard.of
    for into, given in zip(shard.split(out), shard.split(lines), strict=True):
        by(for_tile(given), for_tile(into), first=first, of=of)
    return out


def for_tile(values: Tensor) -> Array:
    """The values without gaps, on the CPU as NumPy's array, which a tile takes in a tenth of DLPack's time."""
    values = values.contiguous()
    return values.numpy() if values.is_cpu else values


def bias_gradient(d: Tensor, bias: Tensor) -> Tensor:
    """The gradient of a bias that was added to a read, from those of its outputs [m, out_features]."""
    made = d.sum(0)
    return made if made.dtype == bias.dtype else made.to(bias.dtype)


def _counted(array: TileArray) -> list[int]:
    return [tile.counters["forward_samples"] for tile in array]
