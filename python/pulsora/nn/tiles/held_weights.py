"""Tiles that hold the weights of a parameter of torch, written to them for reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora import _core
from pulsora.nn.tiles.tile_read import for_tile

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["HeldWeights"]

_STALE = (
    "the weights of this layer changed after they were programmed, and the programmed array no "
    "longer stands for them; call pulsora.program(model) again, or return to the weights by "
    "pulsora.inference.unprogram(model)"
)


class HeldWeights:
    """Tiles whose weights are a parameter of torch.

    The parameter is what optimisers train. Its values are written to the tiles before reads,
    unless the tiles are programmed: a programmed array stays until it is programmed anew, and is
    not read in an evaluation once the parameter differs from what was programmed.

    Args:
        array: The tiles, of a kind whose facts say `digital_weight`.
    """

    def __init__(self, array: TileArray) -> None:
        self.array = array
        self._version: tuple[int, int] | None = None  # of the values that the tiles have
        self._was_programmed = False  # before training went on from the weights

    @property
    def is_programmed(self) -> bool:
        """Whether reads see a programmed array."""
        return next(iter(self.array))._core.programmed_point() is not None  # noqa: SLF001

    def write(self, weight: Tensor) -> None:
        """Writes the values of the parameter to the tiles."""
        self.array.changes += 1
        values = weight.detach().reshape(self.array.shape).float()
        for row, col, tile in self.array.parts():
            tile._core.take(for_tile(values[row, col]))  # noqa: SLF001 - of this package
        self._version = _version(weight)

    def before_read(self, weight: Tensor, *, evaluation: bool) -> None:
        """Prepares the tiles for a read.

        Raises:
            StateError: In an evaluation, if the weights changed since they were programmed.
        """
        if not self.is_programmed:
            if evaluation and self._was_programmed:
                raise _core.StateError(_STALE)
            # In place through .data, weights change without a new version, so they are written.
            self.write(weight)
        elif not evaluation and weight.requires_grad:
            self._was_programmed = True  # training goes on from the weights
            self._unprogram()
            self.write(weight)
        elif not self.is_current(weight):
            raise _core.StateError(_STALE)

    def before_backward(self, weight: Tensor, numbers: list[int], *, evaluation: bool) -> None:
        """Prepares the tiles for the backward read of a forward read at these sample numbers."""
        if self.is_programmed:
            return
        if self._version != _version(weight):
            self.write(weight)
        if not evaluation:
            for tile, number in zip(self.array, numbers, strict=True):
                tile._core.see(number)  # noqa: SLF001 - of this package

    def is_current(self, weight: Tensor) -> bool:
        """Whether the tiles have the values of the parameter."""
        if self._version == _version(weight):
            return True
        values = weight.detach().reshape(self.array.shape).float().cpu()
        same = all(
            torch.equal(torch.from_numpy(tile.programming.written.copy()), values[row, col])
            for row, col, tile in self.array.parts()
            if tile.programming is not None
        )
        if same:
            self._version = _version(weight)
        return same

    def program(self, weight: Tensor, number: int) -> int:
        """Programs the weights; returns the number of tiles all of whose weights are 0."""
        self._unprogram()
        self.write(weight)
        self._was_programmed = False
        zeros = [tile._core.program(number) for tile in self.array]  # noqa: SLF001
        return sum(map(int, zeros))

    def unprogram(self) -> None:
        """Returns to reads of the weights."""
        self._unprogram()
        self._was_programmed = False

    def require_time(self, time: float) -> None:
        """Raises ConfigError for a time for which the noise model has no numbers."""
        model: Any = self.array.config.noise_model  # type: ignore[attr-defined]
        last = _core.last_time(model.to_dict())
        if time > last:
            raise _core.ConfigError(
                f"time is {time:g} s, but {model.model} has numbers up to {last:g} s; choose an "
                "earlier time, or set extrapolate=True in the noise model"
            )

    def require_drift(self, weight: Tensor, time: float) -> None:
        """The errors of drift(); nothing changes."""
        if self._was_programmed or (self.is_programmed and not self.is_current(weight)):
            raise _core.StateError(_STALE)
        for tile in self.array:
            tile._core.require_drift(time)  # noqa: SLF001 - of this package

    def drift(self, time: float, redraw: int) -> None:
        """Lets reads see the programmed array at that time."""
        self.array.changes += 1
        for tile in self.array:
            tile._core.drift(time, redraw)  # noqa: SLF001 - of this package

    def gradient(self, x: Tensor, d: Tensor) -> Tensor:
        """Returns d^T x [out_features, in_features], of each group for itself."""
        groups = self.array.groups
        if groups == 1:
            return d.t() @ x
        blocks = torch.einsum(
            "mgr,mgc->grc", d.reshape(len(d), groups, -1), x.reshape(len(x), groups, -1)
        )
        return blocks.reshape(self.array.shape)

    def _unprogram(self) -> None:
        for tile in self.array:
            tile._core.unprogram()  # noqa: SLF001 - of this package


def _version(weight: Tensor) -> tuple[int, int]:
    return weight.data_ptr(), weight._version  # noqa: SLF001 - torch's counter of writes
