"""PyTorch layers on analog tiles. Needs torch; the rest of Pulsora does not."""

from pulsora.nn.base import AnalogModule
from pulsora.nn.conv import AnalogConv2d
from pulsora.nn.linear import AnalogLinear
from pulsora.nn.tile_array import AnalogParameter, TileArray

__all__ = ["AnalogConv2d", "AnalogLinear", "AnalogModule", "AnalogParameter", "TileArray"]
