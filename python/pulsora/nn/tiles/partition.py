"""The partition of a layer into tiles."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pulsora.config import TileConfig

__all__ = ["configs_of_columns", "even_slices", "tiles_of_layer"]


def even_slices(size: int, limit: int) -> list[slice]:
    """Splits `size` lines over as few tiles of at most `limit` lines as possible, evenly."""
    count = 1 if limit == 0 else -(-size // limit)
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def tiles_of_layer(config: TileConfig, limits: dict[str, int]) -> tuple[TileConfig, dict[str, int]]:
    """Returns the configuration of the tiles of a layer, and the largest sizes of a tile.

    A layer with an adapter that spans it is one tile, which has the limits in its configuration and
    is read in blocks.
    """
    if not config.facts.spans_layer:
        return config, limits
    own = {name: getattr(config, name) or limit for name, limit in limits.items()}
    return config.replace(**own), dict.fromkeys(limits, 0)


def configs_of_columns(config: TileConfig, count: int, *, has_bias: bool) -> list[TileConfig]:
    """Returns the configuration of the tiles in each column of tiles.

    `perfect_bias` holds in the last column of the array with the weights, or all arrays of a vector
    cell, if that is a bias. It is switched off elsewhere, adapters included, whose last columns are
    no bias.
    """
    devices = config.named_devices()
    given = [name for name, each in devices.items() if getattr(each, "perfect_bias", 0)]

    def without(names: list[str]) -> TileConfig:
        changed = {name: devices[name].replace(perfect_bias=False) for name in names}
        return config.with_devices(changed).frozen() if names else config

    parameter = config.facts.written.partition("[")[0]
    last = [name for name in given if not has_bias or name.partition("[")[0] != parameter]
    return [without(given)] * (count - 1) + [without(last)]
