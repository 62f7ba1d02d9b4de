"""Cells that cannot hold their weights: other cells of their rows make up for them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["Inputs", "Unreachable"]

_DAMPING = 0.1
"""What is added to the diagonal of the products of inputs, as a share of its mean.

Other cells have errors of their own, and the inputs are a sample.
"""


class Inputs:
    """Sums of products of the inputs that an array reads, [groups, inputs, inputs]."""

    def __init__(self, array: TileArray) -> None:
        columns = array.shape[1]
        self.groups = array.groups
        self.sums = torch.zeros(
            array.groups, columns, columns, dtype=torch.float64, device=array.device
        )

    def add(self, x: Tensor) -> None:
        """Adds inputs [m, groups * inputs]."""
        parts = x.double().reshape(len(x), self.groups, self.sums.shape[1]).transpose(0, 1)
        self.sums.baddbmm_(parts.transpose(1, 2), parts)

    def are_finite(self) -> bool:
        """Whether all inputs were finite."""
        return bool(self.sums.isfinite().all())

    def are_zero(self) -> bool:
        """Whether there was no input but 0."""
        return not bool(self.sums.any())

    @staticmethod
    @contextmanager
    def of(arrays: Mapping[str, TileArray]) -> Iterator[dict[str, Inputs]]:
        """Sums up the inputs of arrays, by their names, within this context."""
        sums = {name: Inputs(array) for name, array in arrays.items()}
        for name, array in arrays.items():
            array.seen = sums[name].add
        try:
            yield sums
        finally:
            for array in arrays.values():
                array.seen = None


class Unreachable:
    """The cells of an array that miss their weights, and weights for the others.

    Args:
        array: The array.
        inputs: What it reads.
    """

    def __init__(self, array: TileArray, inputs: Inputs) -> None:
        self.array = array
        self.wanted = array.get_weights()
        self.aims = self.wanted
        self.missed = torch.zeros_like(self.wanted, dtype=torch.bool)
        self.tolerances = _tolerances(array)
        sums = inputs.sums
        damping = _DAMPING * sums.diagonal(dim1=1, dim2=2).mean(1)
        eye = torch.eye(sums.shape[1], dtype=sums.dtype, device=sums.device)
        self.inverse = torch.linalg.inv(sums + damping[:, None, None] * eye)

    def look(self) -> bool:
        """Finds the cells that miss their aims, and aims anew; False if no more cells miss."""
        held = self.array.get_weights()
        missed = self.missed | ((held - self.aims).abs() > self.tolerances)
        if torch.equal(missed, self.missed):
            return False
        self.missed = missed
        # A cell that missed is taken as it is.
        self.aims = torch.where(missed, held, self.wanted)
        each = len(held) // len(self.inverse)
        for row in missed.any(1).nonzero().flatten().tolist():
            self.aims[row] += self._made_up(row, self.inverse[row // each])
        return True

    def _made_up(self, row: int, inverse: Tensor) -> Tensor:
        """Returns the changes of the cells of a row that make up for those which missed.

        They minimise the mean square of c x over the inputs x, where c is the difference of the
        whole row from its wanted weights, whose elements at cells that missed are given.
        """
        cells = self.missed[row].nonzero().flatten()
        errors = (self.aims[row, cells] - self.wanted[row, cells]).double()
        shares = torch.linalg.solve(inverse[cells][:, cells], errors)
        changes: Tensor = inverse[:, cells] @ shares
        changes[cells] = 0.0
        return changes.to(self.wanted.dtype)


def _tolerances(array: TileArray) -> Tensor:
    """Returns the tolerance of each cell, [out_features, in_features]."""
    values = torch.empty(array.shape)
    for row, col, tile in array.parts():
        assert tile.adapter is not None  # noqa: S101 - arrays with adapters alone come here
        values[row, col] = tile.adapter.tolerance
    values = values.to(array.device)
    return values if array.scales is None else values * array.scales[:, None]
