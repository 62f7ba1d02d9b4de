"""Calls of the tiles of an array one by one, with the results of a `TileGrid`.

They serve an array of one tile, reads that are made again, each from the numbers that its tile had, and gated adapters.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch

from pulsora.nn.tiles.tile_read import for_tile, forward_of, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from pulsora import _core
    from pulsora.nn.tiles.batch_shard import BatchShard
    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.nn.tiles.tile_read import ReadPosition
    from pulsora.tile import Tile
    from pulsora.tile.adapter import Adapter

__all__ = ["TileSamples", "adapter_in", "backward", "cut", "forward", "update"]


class TileSamples(NamedTuple):
    """Samples of an update as tiles take them."""

    whole: _core.TileGrid | None
    """What takes them as they are; None if they are cut for the tiles."""
    inputs: list[list[Tensor]]
    """x of each tile, row by row."""
    outputs: list[Tensor]
    """d of each row of tiles."""
    gate: Tensor | None = None
    """Weights of the adapters' components, if their read was gated."""


def forward(array: TileArray, x: Tensor, position: ReadPosition) -> Tensor:
    """y [m, out_features] = W x, without scales."""
    if len(array) == 1:
        (by,) = forward_of(array, position)
        return read(by, x.contiguous(), array.shape[0], position.shard)
    tiles_read = iter(forward_of(array, position))
    lines = _inputs(array, x)
    reads = [
        [
            read(next(tiles_read), given, tile.d_size, position.shard)
            for given, tile in zip(line, tiles, strict=True)
        ]
        for line, tiles in zip(lines, array.grid, strict=True)
    ]
    return _side_by_side([_total(row) for row in reads])


def backward(array: TileArray, d: Tensor, shard: BatchShard) -> Tensor:
    """dx [m, groups * in_features] = W^T d, for d that has been multiplied by the scales."""
    if len(array) == 1:
        return read(array.grid[0][0].backward, d.contiguous(), array.shape[1], shard)
    reads = [
        [read(tile.backward, line, tile.x_size, shard) for tile in tiles]
        for line, tiles in zip(_outputs(array, d), array.grid, strict=True)
    ]
    count = len(array.rows) // array.groups
    parts = [
        _total(of_column)
        for first in range(0, len(array.rows), count)
        for of_column in zip(*reads[first : first + count], strict=True)
    ]
    return _side_by_side(parts)


def cut(array: TileArray, x: Tensor, d: Tensor, gate: Tensor | None) -> TileSamples:
    """The samples (x, d) of an update, for each tile."""
    return TileSamples(None, _inputs(array, x), _outputs(array, d), gate)


def update(array: TileArray, samples: TileSamples, lr: float) -> None:
    """W <- W - lr d^T x by pulses; the mini-batch does not end."""
    for line, back, tiles in zip(samples.inputs, samples.outputs, array.grid, strict=True):
        for given, tile in zip(line, tiles, strict=True):
            x, d = for_tile(given), for_tile(back)
            if samples.gate is None:
                tile.update(x, d, lr, end_of_batch=False)
            else:
                adapter_in(tile).update(x, d, samples.gate, lr, end_of_batch=False)


def adapter_in(tile: Tile) -> Adapter:
    """The adapter of a tile that must have one."""
    if tile.adapter is None:
        raise ValueError(
            "gate: the tiles have no adapter whose components it could weigh; use LRTTConfig with a "
            "rank of 1 or more, or pulsora.nn.GatedAdapter with a rank"
        )
    return tile.adapter


def _inputs(array: TileArray, x: Tensor) -> list[list[Tensor]]:
    """The columns of x that each tile takes, without gaps; tiles of one column share theirs.

    All are cut before the first is read.
    """
    if len(array) == 1:
        return [[x.contiguous()]]
    lines = [[array.lines(i, col) for col in array.cols] for i in range(len(array.rows))]
    first = {each.start: each for of_row in lines for each in of_row}
    columns = {start: x[:, each].contiguous() for start, each in first.items()}
    return [[columns[each.start] for each in of_row] for of_row in lines]


def _outputs(array: TileArray, d: Tensor) -> list[Tensor]:
    """The columns of d that each row of tiles takes, without gaps."""
    if len(array.rows) == 1:
        return [d.contiguous()]
    return [d[:, row].contiguous() for row in array.rows]


def _total(reads: Iterable[Tensor]) -> Tensor:
    """The sum of what the tiles of one row, or column, have read; one read is not copied."""
    return functools.reduce(torch.add, reads)


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
