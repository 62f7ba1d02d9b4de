"""Layers of one model that are copies of each other: equal cells, and equal noise."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["warn_of_twins"]


def warn_of_twins(arrays: Iterable[TileArray], told: set[str], stacklevel: int = 2) -> None:
    """Warns once if different tiles have the same random numbers.

    Args:
        arrays: The tiles of the layers that are trained together.
        told: Warnings so far, to which this one is added.
        stacklevel: As for `warnings.warn`, from the caller on.
    """
    if "twins" in told:
        return
    owners: dict[object, TileArray] = {}
    for array in {id(each): each for each in arrays}.values():
        if not _is_random(array):
            continue
        for tile in array:
            key = (tile.seed, tile.tile_id, tile.d_size, tile.x_size)
            owner = owners.setdefault(key, array)
            if owner is array or owner.tile_config != array.tile_config:
                continue
            told.add("twins")
            warnings.warn(
                f"an analog layer of shape {list(array.shape)} has the seed of another one, as a "
                "copy has: their cells and their noise are equal. If each layer is hardware of its "
                "own, call pulsora.reseed(model, seed, cells=True), which keeps the weights",
                stacklevel=stacklevel + 1,
            )
            return


def _is_random(array: TileArray) -> bool:
    """Whether tiles have cells, or reads that are not perfect."""
    config = array.tile_config
    reads = [getattr(config, name, None) for name in ("forward", "backward")]
    return bool(array.facts.written) or not all(io is None or io.is_perfect for io in reads)
