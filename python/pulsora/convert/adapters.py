"""Adapters of pulsed arrays, written into the arrays beneath them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.batches import inputs_of
from pulsora._internal.modules import require_module
from pulsora.convert.arrays import layers_of_arrays
from pulsora.convert.unreachable import Inputs, Unreachable
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["merge"]

_REVISIONS = 2  # of the weights of cells that make up for others; a few of these miss too


@torch.no_grad()
def merge(
    model: nn.Module, batches: torch.Tensor | Iterable[Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Writes the adapters of all LRTT layers into W, in place, and leaves A at 0.

    W alone is then the weight, to deploy it whenever training stops. Training can go on from there.
    Tiles without an adapter stay as they are.

    Some weights may lie beyond the bounds of their cells, above all after a long training: what
    their cells cannot hold has stayed in the adapter so far. With `batches`, other cells of the
    same row make up for it. They are programmed to the weights for which the outputs of the row
    differ least, in the mean square over these inputs, from those of before.

    Args:
        model: A model with LRTT layers, on any device. In eval(), if there are batches.
        batches: Inputs of the model, to make up for cells out of reach; of pairs (input, target)
            the input. A tensor is one batch. Some hundred samples are enough. Meanwhile a layer
            takes 8 bytes for each pair of its inputs.

    Returns:
        For each analog layer with adapters, by its name, the statistics of the last transfer of
        each of its tiles (`Tile.adapter.transfer_stats`): `error` is the root mean square of
        target - weight over cells, `outside_cells` the number that ended farther from their target
        than the tolerance. With batches there are up to three transfers.

    Raises:
        TypeError: If batches are none; for a tile, whose adapter is merged by
            `tile.adapter.merge()`.
        ValueError: If no layer has an adapter. With batches, also if the model is in training mode,
            if a layer's transfers are not made by program and verify, if its inputs are not finite
            or all 0, or if several processes train it. Nothing has changed then.
    """
    if isinstance(model, Tile):
        raise TypeError(
            "model is a Tile; call tile.adapter.merge(), or give a torch.nn.Module with LRTT layers"
            if model.adapter is not None
            else "model is a Tile without an adapter, so that there is nothing to merge: W is the "
            "whole weight already"
        )
    require_module(model)
    arrays = {
        name: layer.tiles
        for name, layer in layers_of_arrays(model).items()
        if any(tile.adapter is not None for tile in layer.tiles)
    }
    if not arrays:
        raise ValueError(
            "the model has no layer with an LRTT adapter, so that there is nothing to merge: W is "
            "the whole weight already"
        )
    if batches is None:
        return {name: _merged(array) for name, array in arrays.items()}
    inputs = _inputs(model, arrays, batches)
    report = {}
    for name, array in arrays.items():
        cells = Unreachable(array, inputs.pop(name))
        report[name] = _merged(array)
        for _ in range(_REVISIONS):
            if not cells.look():
                break
            report[name] = _merged(array, cells.aims)
    return report


def _inputs(
    model: nn.Module, arrays: dict[str, TileArray], batches: torch.Tensor | Iterable[Any]
) -> dict[str, Inputs]:
    """Returns the inputs of arrays by their names, after checks."""
    if model.training:
        raise ValueError(
            "the model is in training mode; call eval(), so that its inputs are those it will see"
        )
    for name, array in arrays.items():
        if array.process_group.gathers:
            raise ValueError(
                f"layer '{name}' is trained by several processes; merge a copy of the model in one "
                "process, from its saved state, or leave out batches"
            )
        if any(tile.adapter is None or tile.adapter.tolerance == 0.0 for tile in array):
            raise ValueError(
                f"layer '{name}' has transfers that lead no cell to a target; choose "
                "transfer_mode='write_verify', or leave out batches"
            )
    with Inputs.of(arrays) as inputs:
        for x in inputs_of(batches):
            model(**x) if isinstance(x, dict) else model(x)
    for name, given in inputs.items():
        if not given.are_finite():
            raise ValueError(f"layer '{name}' got inputs that are not finite; leave these out")
        if given.are_zero():
            raise ValueError(
                f"layer '{name}' got no input but 0; give batches of data as the model will see"
            )
    return inputs


def _merged(array: TileArray, weights: torch.Tensor | None = None) -> list[dict[str, Any]]:
    """Merges the adapters of an array, with weights of it that its cells get; their statistics."""
    values = None
    if weights is not None:
        values = (weights if array.scales is None else weights / array.scales[:, None]).cpu()
    return [
        tile.adapter.merge(None if values is None else values[row, col].contiguous().numpy())
        for row, col, tile in array.parts()
        if tile.adapter is not None
    ]
