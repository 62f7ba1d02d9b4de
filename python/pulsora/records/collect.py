"""The record of an epoch, from a model.

Collecting reads every array once, without noise, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.nn import AnalogModule, AnalogParameter
from pulsora.records.files import epoch_line, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import nn

    from pulsora.records.files import Record
    from pulsora.tile import Tile

__all__ = ["distribution", "epoch_record"]

_BINS = 48


def epoch_record(model: nn.Module, epoch: int, metrics: Mapping[str, float]) -> Record:
    """The record of an epoch.

    Args:
        model: A model with or without analog layers. Its tiles are recorded one by one, and digital
            parameters of two or more dimensions by their distribution.
        epoch: Number of the epoch, from 1.
        metrics: Numbers by name, such as loss and accuracy.
    """
    tiles: list[Record] = []
    seen: set[int] = set()
    for layer, module in model.named_modules():
        if not isinstance(module, AnalogModule) or id(module.tiles) in seen:
            continue
        seen.add(id(module.tiles))
        tiles += [
            {"layer": layer or "model", "tile": number, **_tile_record(tile)}
            for number, tile in enumerate(module.tiles)
        ]
    parameters = [
        {"name": name, "distribution": distribution(parameter.detach().float().cpu().numpy())}
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1
        and parameter.is_floating_point()
        and not isinstance(parameter, AnalogParameter)
    ]
    return epoch_line(epoch, metrics, tiles, parameters)


def _tile_record(tile: Tile) -> Record:
    """The record of a tile; without cells, its weights stand for an array."""
    arrays = {name: _array_record(tile, name, tile.arrays[name]) for name in tile.arrays}
    if not arrays:
        weights = tile.weights
        arrays = {"weights": {"cells": weights.size, "distribution": distribution(weights)}}
    return {
        "kind": tile.config.kind,
        "shape": [tile.d_size, tile.x_size],
        "statistics": plain(tile.statistics()),
        "hardware": plain(tile.hardware_counts()),
        "arrays": arrays,
    }


def _array_record(tile: Tile, name: str, weights: NDArray[np.float32]) -> Record:
    return {
        "cells": weights.size,
        "saturated": tile.saturated_cells(name),
        "distribution": distribution(weights),
    }


def distribution(values: NDArray[Any]) -> Record:
    """Mean, standard deviation, least, greatest, and counts in equal bins between them.

    Values that are not finite are left out.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    if finite.size == 0:
        return {"mean": None, "std": None, "low": None, "high": None, "counts": []}
    low, high = float(finite.min()), float(finite.max())
    counts = [finite.size]
    if low < high:
        counts = np.histogram(finite, _BINS, (low, high))[0].tolist()
    return {
        "mean": float(finite.mean()),
        "std": float(finite.std()),
        "low": low,
        "high": high,
        "counts": counts,
    }
