"""Weights that a write will confine to the bounds of their cells, found before it is made."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsora.tile.arrays import Array

__all__ = ["Confined", "as_written", "confined", "warn_of_clipping"]


def as_written(weights: Array) -> Array:
    """Converts weights once, to a float32 array of NumPy where they are in host memory.

    Lists, whole numbers and other precisions are converted as NumPy does. What is no numbers, or in
    GPU memory behind a library that has no `cpu()`, is returned as it is, for the core.

    Raises:
        InputError: For lists of which NumPy makes no array.
    """
    if hasattr(weights, "__dlpack__") and not isinstance(weights, np.ndarray):
        try:
            host = weights.detach() if hasattr(weights, "detach") else weights
            host = host.cpu() if hasattr(host, "cpu") else host
            found = np.from_dlpack(host)
        except Exception:  # noqa: BLE001 - of any library; the core says what is wrong
            return weights
    elif isinstance(weights, np.ndarray | list | tuple | int | float | np.generic):
        try:
            found = np.asarray(weights)
        except ValueError as error:
            raise _core.InputError(
                f"weights is a {type(weights).__name__} that is no array of numbers ({error}); "
                "give rows of numbers, all of one length"
            ) from error
    else:
        return weights
    return np.asarray(found, np.float32) if found.dtype.kind in "biuf" else found


class Confined(NamedTuple):
    """Weights beyond the bounds of their cells.

    Attributes:
        beyond: Their number.
        size: Number of all weights.
        lost: Sum of the squares of what is beyond the bounds.
        total: Sum of the squares of all weights.
    """

    beyond: int
    size: int
    lost: float
    total: float


def confined(tile: _core.Tile, wanted: Array) -> Confined:
    """Finds the weights that a write to the tile would confine; none if they do not fit it."""
    is_matrix = isinstance(wanted, np.ndarray) and wanted.shape == (tile.d_size, tile.x_size)
    if not is_matrix or "visible" not in tile.arrays() or wanted.dtype != np.float32:
        return Confined(0, 1, 0.0, 0.0)
    cells = tile.describe_cells("visible")
    beyond = np.maximum(wanted - cells["w_max"], cells["w_min"] - wanted)
    largest = float(np.abs(wanted).max(initial=0.0))
    outside = beyond[beyond > 1e-3 * largest].astype(np.float64)
    total = np.square(wanted, dtype=np.float64).sum()
    return Confined(len(outside), wanted.size, float(np.square(outside).sum()), float(total))


def warn_of_clipping(
    parts: Iterable[Confined],
    wanted: Array,
    stacklevel: int = 3,
    remedy: str | None = None,
    share: float = 0.01,
) -> None:
    """Warns, before a write, if it will change the weights by what matters.

    That is more than `share` of them, and more than a tenth of their norm: if bounds spread, a few
    cells have narrow bounds, which is no reason to warn. `wanted` are all weights.
    """
    count, size, lost, total = map(sum, zip(*parts, strict=True))
    if count > share * size and lost > 0.01 * total:
        largest = float(abs(wanted).max())
        warnings.warn(
            f"{count} of {size} weights (up to {largest:.3g}) lie outside the bounds of their "
            "cells and are confined to them; "
            + (remedy or "choose a device with a larger w_max or scale the weights down"),
            stacklevel=stacklevel,
        )
