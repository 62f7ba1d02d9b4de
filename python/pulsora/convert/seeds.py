"""New random numbers for the tiles of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from pulsora._internal.seeds import drawn_seed
from pulsora.convert.arrays import arrays_of
from pulsora.tile.clipping import warn_of_clipping

if TYPE_CHECKING:
    from torch import nn

__all__ = ["reseed"]

_M = TypeVar("_M", bound="nn.Module")


def reseed(model: _M, seed: int | None = None, *, cells: bool = False) -> _M:
    """Gives every tile of a model a new seed, in place, so that its noise is another from now on.

        chips = [pl.reseed(copy.deepcopy(model), seed, cells=True) for seed in range(10)]

    A copy of a model has the seeds of its original, and so the same noise. Weights, counters and
    cells stay. Tiles that several layers share get one seed. `state_dict()` contains the new seeds,
    so that a resumed run equals an uninterrupted one to the bit.

    Args:
        model: A model with analog layers, on any device.
        seed: Number from 0 to 2^63 - 1, from which the seed of each layer follows, by the layer's
            place in the model. By default drawn from torch's generator. (With several processes:
            the same number in all of them.)
        cells: Whether cells and the fixed spreads of lines and converters are sampled anew too. The
            arrays are then written with their weights, within the bounds of the new cells, with a
            warning for layers of which more than 1 % lay outside. (Cells of devices with a
            construction_seed stay.)

    Returns:
        The model.

    Raises:
        ValueError: If the model has no analog layer, or for a bad seed; nothing has changed then.
        StateError: If a weight is not finite.
    """
    arrays = arrays_of(model)
    if seed is None:
        seed = drawn_seed()
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"seed = {seed!r}: give a whole number from 0 to 2^63 - 1")
    generator = torch.Generator().manual_seed(seed)
    seeds = [drawn_seed(generator) for _ in arrays]
    if cells:  # a warning may be an error, so all come before the first change
        for array, drawn in zip(arrays, seeds, strict=True):
            parts = [tile._confined_by(drawn) for tile in array]  # noqa: SLF001 - of this package
            warn_of_clipping(parts, array.get_weights())
    for array, array.seed in zip(arrays, seeds, strict=True):
        array.changes += cells
        for tile in array:
            tile._core.reseed(array.seed, cells)  # noqa: SLF001 - without Tile's warning
    return model
