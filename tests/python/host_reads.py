"""Reads of a tile with arrays in host memory, wherever the tile is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    import pulsora as pl


class HostReads:
    """A tile whose reads take and return arrays of NumPy; all else is the tile's own."""

    def __init__(self, tile: pl.Tile) -> None:
        vars(self)["tile"] = tile

    def forward(self, x: NDArray[Any], **options: Any) -> NDArray[Any]:
        return self._read(self.tile.forward, x, options)

    def backward(self, d: NDArray[Any], **options: Any) -> NDArray[Any]:
        return self._read(self.tile.backward, d, options)

    def _read(
        self, by: Callable[..., Any], given: NDArray[Any], options: dict[str, Any]
    ) -> NDArray[Any]:
        place = str(self.tile.device)
        if place == "cpu":
            read: NDArray[Any] = by(given, **options)
            return read
        moved = torch.as_tensor(given).to(place)
        return from_dlpack(by(moved, **options)).cpu().numpy()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(vars(self)["tile"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.tile, name, value)
