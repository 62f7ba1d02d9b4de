"""Exact products with matrices of several groups, whose inputs lie beside one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["gradient_of", "product_of"]


def product_of(array: TileArray, x: Tensor, weight: Tensor) -> Tensor:
    """Returns the exact product W x of each group, [m, out_features]."""
    groups = array.groups
    matrix = weight.detach().reshape(array.shape).float()
    if groups == 1:
        return x @ matrix.t()
    blocks = matrix.reshape(groups, -1, matrix.shape[1])
    return torch.einsum("mgc,grc->mgr", x.reshape(len(x), groups, -1), blocks).flatten(1)


def gradient_of(array: TileArray, x: Tensor, d: Tensor) -> Tensor:
    """Returns d^T x [out_features, in_features] of the tiles, of each group for itself."""
    groups = array.groups
    if groups == 1:
        return d.t() @ x
    blocks = torch.einsum(
        "mgr,mgc->grc", d.reshape(len(d), groups, -1), x.reshape(len(x), groups, -1)
    )
    return blocks.reshape(array.shape)
