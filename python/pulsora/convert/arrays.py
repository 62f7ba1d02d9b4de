"""The tiles of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora._internal.modules import require_module
from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from torch import nn

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["arrays_of"]


def arrays_of(model: nn.Module) -> list[TileArray]:
    """Returns the tiles of each layer in the order of the layers; shared tiles once.

    Raises:
        ValueError: If there are none.
    """
    require_module(model)
    found = [layer.tiles for layer in model.modules() if isinstance(layer, AnalogModule)]
    if not found:
        raise ValueError(
            "the model has no analog layer; make one by pulsora.convert_to_analog(model, config)"
        )
    return list({id(array): array for array in found}.values())
