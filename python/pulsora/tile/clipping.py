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
    if not is_matrix or wanted.dtype != np.float32:
        return Confined(0, 1, 0.0, 0.0)
    beyond = _beyond(tile, wanted)
    if beyond is None:
        return Confined(0, 1, 0.0, 0.0)
    largest = float(np.abs(wanted).max(initial=0.0))
    outside = beyond[beyond > 1e-3 * largest].astype(np.float64)
    total = np.square(wanted, dtype=np.float64).sum()
    return Confined(len(outside), wanted.size, float(np.square(outside).sum()), float(total))


def _beyond(tile: _core.Tile, wanted: Array) -> Array | None:
    """Returns how far each weight lies beyond what its cells hold; None for other compounds."""
    arrays = tile.arrays()
    if "visible" in arrays:
        return _past(tile, "visible", wanted)
    if "plus" in arrays:  # each holds the weights of one sign
        return _past(tile, "plus", wanted.clip(min=0.0)) + _past(
            tile, "minus", (-wanted).clip(min=0.0)
        )
    if "array_0" not in arrays:
        return None
    config = tile.config()
    factors = np.array(config["gamma_vec"] or [1.0 / len(arrays)] * len(arrays), np.float32)
    if config["update_policy"] == "single_fixed":  # the others are not written
        factors[np.arange(len(arrays)) != config["first_update_idx"]] = 0.0
    if not factors.any():
        return None
    lost = [f * _past(tile, name, wanted) for f, name in zip(factors, arrays, strict=True)]
    # Of the weight that is written, which is read times the sum of the factors.
    read = factors.sum()
    return np.abs(sum(lost)) / np.abs(read) if read != 0.0 else None


def _past(tile: _core.Tile, array: str, wanted: Array) -> Array:
    """Returns how far weights lie beyond the bounds of their cells, 0 within."""
    cells = tile.describe_cells(array)
    past = np.maximum(wanted - cells["w_max"], cells["w_min"] - wanted)
    return np.maximum(past, np.float32(0.0))


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
