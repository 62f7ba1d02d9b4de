"""Where the reads of an array of tiles begin, and how they are made."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from pulsora.nn.ranks import Part
from pulsora.nn.replay import repeated_read, repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pulsora.arrays import Array
    from pulsora.nn.tile_array import TileArray
    from pulsora.tile import Tile

__all__ = ["Reading", "begin_read", "bias_gradient", "for_tile", "forward_of", "read"]


class Reading(NamedTuple):
    """Where a read of all tiles of an array begins.

    Attributes:
        part: The rows that are read, among those of all processes.
        numbers: For a read that counts no samples, because it is repeated or an evaluation, the number
            of the mini-batch's first sample in each tile; None for any other read.
    """

    part: Part
    numbers: list[int] | None = None


def begin_read(array: TileArray, shape: Sequence[int], steps: int = 1) -> Reading:
    """Where a read of x [*shape, features] begins, which holds so many mini-batches, one below the other.

    Where a checkpointed part of a model runs again, the read is the one it was (`replayed_reads`). An
    evaluation by one of several processes counts no samples, since the others may make another.
    """
    whole = Part((math.prod(shape),))
    part = None if repeats() else array.ranks.part(shape, steps)
    repeated: Reading | None = repeated_read(array, lambda: Reading(part or whole, _counted(array)))
    if repeated is not None:
        return repeated
    if part is not None:
        return Reading(part)
    counted = _counted(array)
    at, samples = array.evaluated
    begun = samples if at == counted else 0
    array.evaluated = counted, begun + math.prod(shape)
    return Reading(whole, [number + begun for number in counted])


def forward_of(array: TileArray, reading: Reading) -> Iterator[Callable[..., object]]:
    """For each tile, the function that reads mini-batch after mini-batch, with arguments as `Tile.forward`."""
    for index, tile in enumerate(array):
        if reading.numbers is None:
            yield tile.forward
        else:
            yield _uncounted(tile, reading.numbers[index], reading.part)


def _uncounted(tile: Tile, begun: int, part: Part) -> Callable[..., object]:
    starts = itertools.count(begun + part.first, part.of)

    def again(lines: Array, out: Array, **_: int) -> None:
        tile._core.forward_again(lines, out, next(starts), part.of)  # noqa: SLF001 - of this package

    return again


def read(by: Callable[..., object], lines: Tensor, outputs: int, part: Part) -> Tensor:
    """What a tile reads of lines without gaps, in memory of torch's own: adopting a tile's costs more than the read."""
    out = lines.new_empty(len(lines), outputs)
    first, of = part.first, part.of
    for into, given in zip(part.split(out), part.split(lines), strict=True):
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
