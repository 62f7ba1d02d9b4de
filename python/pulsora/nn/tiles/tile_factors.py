"""The factors A and B of adapters in tiles, with and without swap_xd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pulsora.nn.tiles.separate_tiles import adapter_in

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.tile import Tile

__all__ = ["alpha_of", "set_tile_factors", "tile_factors"]


def tile_factors(tile: Tile) -> tuple[Tensor, Tensor, float]:
    """Returns A [outputs, rank], B [rank, inputs] and alpha of the change alpha A B of weights."""
    adapter = adapter_in(tile)
    a, b = torch.tensor(adapter.a), torch.tensor(adapter.b)
    if tile.config.swap_xd:  # type: ignore[attr-defined] # with an adapter
        a, b = b.T, a.T
    return a, b, alpha_of(tile)


def set_tile_factors(tile: Tile, a: Tensor, b: Tensor) -> None:
    """Writes A [outputs, rank] and B [rank, inputs] digitally, within the bounds of the cells."""
    adapter = adapter_in(tile)
    if tile.config.swap_xd:  # type: ignore[attr-defined]
        a, b = b.T, a.T
    adapter.a, adapter.b = a.contiguous().numpy(), b.contiguous().numpy()


def alpha_of(tile: Tile) -> float:
    """Returns the factor alpha in force; with 'auto' settings the core chooses it."""
    x, d = (torch.zeros(1, size, device=tile.device) for size in (tile.x_size, tile.d_size))
    return float(tile.explain(x, d, 1.0)["alpha"])
