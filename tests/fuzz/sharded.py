"""Tiles updated elsewhere, whose changes come back: the bits are those of a single place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.tiles.tile_array import TileArray
from tests.fuzz import generators
from tests.fuzz.checks import REFUSALS, bits, require

if TYPE_CHECKING:
    from tests.fuzz.random_source import Draws

ROWS, COLS = 9, 11


def run(draws: Draws) -> None:
    config = generators.config(
        draws, value_of=draws.pick((generators.plausible, generators.plausible, generators.extreme))
    )
    sizes = {"max_input_size": draws.pick((4, 6)), "max_output_size": draws.pick((5, 9))}
    try:
        arrays = [TileArray(ROWS, COLS, config, seed=3, threads=1, **sizes) for _ in range(3)]
    except REFUSALS:
        return
    grids: list[Any] = [array.whole for array in arrays]
    if len(arrays[0]) == 1:  # an adapter that spans the layer
        return
    owners = [draws.integer(0, 1) for _ in arrays[0]]
    shards = [[i for i, owner in enumerate(owners) if owner == k] for k in (0, 1)]
    draws.note("tiles", shards, sizes)
    for _ in range(draws.integer(1, 4)):
        rows = draws.integer(1, 6)
        x = torch.from_numpy(draws.normal(rows, COLS, scale=draws.pick((1.0, 1e-3, 1e3))))
        d = torch.from_numpy(draws.normal(rows, ROWS, scale=0.1))
        lr = draws.pick((0.01, 0.1, 1.0, -0.05))
        draws.note("rows", rows, "lr", lr)
        try:
            for grid in grids:
                grid.forward(x, torch.empty(rows, ROWS))
                grid.backward(d, torch.empty(rows, COLS))
            grids[0].update(x, d, lr)
            grids[0].end_batch(lr)
        except REFUSALS:  # reads or updates beyond single precision: of one tile, and of others not
            return
        for grid, tiles in zip(grids[1:], shards, strict=True):
            grid.update(x, d, lr, tiles)
            grid.end_batch(lr, tiles)
        for tiles, source, target in ((shards[0], *grids[1:]), (shards[1], *grids[:0:-1])):
            together = draws.pick((True, False))  # tensors, and the numbers of the host
            changes = torch.empty(source.changes_size(tiles, together))
            source.pack_changes(tiles, changes, together)
            if draws.pick((True, False)):
                target.release_weights(tiles)
            if not together:
                target.restore_numbers(tiles, source.changed_numbers(tiles))
            target.unpack_changes(tiles, changes, together)
        wanted, *found = ([bits(tile) for tile in array] for array in arrays)
        require(found == [wanted, wanted], "tiles that were shared differ")
