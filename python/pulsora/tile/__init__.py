"""Analog tiles: NumPy arrays, or anything with `__dlpack__`, in and out. Needs no torch."""

from pulsora.tile.adapter import Adapter
from pulsora.tile.arrays import Arrays
from pulsora.tile.explanation import Explanation
from pulsora.tile.tile import Tile

__all__ = ["Adapter", "Arrays", "Explanation", "Tile"]
