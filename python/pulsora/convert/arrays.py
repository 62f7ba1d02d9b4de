"""The tiles of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora._internal.modules import require_module
from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from torch import nn

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["arrays_of", "layers_of_arrays"]


def layers_of_arrays(model: nn.Module) -> dict[str, AnalogModule]:
    """Returns the analog layers by name; of layers that share their tiles, the first."""
    found: dict[int, tuple[str, AnalogModule]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, AnalogModule):
            found.setdefault(id(layer.tiles), (name, layer))
    return dict(found.values())


def arrays_of(model: nn.Module) -> list[TileArray]:
    """Returns the tiles of each layer in the order of the layers; shared tiles once.

    Raises:
        ValueError: If there are none.
    """
    require_module(model)
    found = [layer.tiles for layer in layers_of_arrays(model).values()]
    if not found:
        raise ValueError(
            "the model has no analog layer; make one by pulsora.convert_to_analog(model, config)"
        )
    return found
