"""Adapters of pulsed arrays, written into the arrays beneath them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from torch import nn

    from pulsora.tile.adapter import Adapter

__all__ = ["merge"]


def merge(model: nn.Module) -> dict[str, list[dict[str, Any]]]:
    """Writes the adapters of all LRTT layers into W, in place, and leaves A at 0.

    W alone is then the weight, to deploy it whenever training stops. Training can go on from there.
    Tiles without an adapter stay as they are.

    Args:
        model: A model with LRTT layers, on any device.

    Returns:
        For each analog layer with adapters, by its name, the statistics of the transfer of each of
        its tiles (`Tile.adapter.transfer_stats`): `error` is the root mean square of target -
        weight over cells, `outside_cells` the number that ended farther from their target than the
        tolerance.

    Raises:
        ValueError: If no layer has an adapter; nothing has changed then.
    """
    adapted: dict[str, list[Adapter]] = {}
    seen: set[int] = set()  # tiles that several layers share are merged once
    for name, layer in model.named_modules():
        if isinstance(layer, AnalogModule) and id(layer.tiles) not in seen:
            seen.add(id(layer.tiles))
            adapters = [tile.adapter for tile in layer.tiles if tile.adapter is not None]
            if adapters:
                adapted[name] = adapters
    if not adapted:
        raise ValueError(
            "the model has no layer with an LRTT adapter, so that there is nothing to merge: W is "
            "the whole weight already"
        )
    return {name: [each.merge() for each in adapters] for name, adapters in adapted.items()}
