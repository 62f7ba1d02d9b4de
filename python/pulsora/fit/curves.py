"""Curves through equally spaced nodes, for many sets of nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["linear_curve", "monotone_curve"]


def _place(low: Array, high: Array, last: int, w: Array) -> tuple[NDArray[np.int64], Array]:
    """The interval of each weight, and the part of it below the weight; clamped at the ends."""
    at = np.clip((w - low) / (high - low) * last, 0.0, float(last))
    interval = np.minimum(at.astype(np.int64), last - 1)
    return interval, at - interval


def _take(table: Array, at: NDArray[np.int64]) -> Array:
    """table[at], whose other axes broadcast against those of `at`."""
    shape = np.broadcast_shapes(table.shape[1:], at.shape)
    found = np.zeros(shape)
    for i, row in enumerate(table):
        found += np.where(at == i, row, 0.0)
    return found


def linear_curve(low: Array, high: Array, values: Array, w: Array) -> Array:
    """Straight lines between equally spaced nodes.

    Args:
        low: Place of the first node.
        high: Place of the last node.
        values: Values at the nodes, [n, ...].
        w: Places to evaluate. Like `low` and `high`, they broadcast against the other axes of
            `values`.
    """
    at, share = _place(low, high, len(values) - 1, w)
    return _take(values, at) + share * _take(np.diff(values, axis=0), at)


def monotone_curve(low: Array, high: Array, values: Array, w: Array) -> Array:
    """The monotone cubic (PCHIP) through equally spaced nodes; arguments as in `linear_curve`."""
    rise = np.diff(values, axis=0)  # slopes per interval
    slopes = np.empty(values.shape)
    product = rise[:-1] * rise[1:]
    total = rise[:-1] + rise[1:]
    rising = product > 0.0
    slopes[1:-1] = np.where(rising, 2.0 * product / np.where(rising, total, 1.0), 0.0)
    for end, own, neighbour in ((0, rise[0], rise[1]), (-1, rise[-1], rise[-2])):
        slope = 0.5 * (3.0 * own - neighbour)
        slope = np.where(slope * own > 0.0, slope, 0.0)
        beyond = (own * neighbour <= 0.0) & (np.abs(slope) > 3.0 * np.abs(own))
        slopes[end] = np.where(beyond, 3.0 * own, slope)
    at, t = _place(low, high, len(values) - 1, w)
    square = 3.0 * rise - 2.0 * slopes[:-1] - slopes[1:]
    cube = slopes[:-1] + slopes[1:] - 2.0 * rise
    # A polynomial of t per interval.
    return _take(values, at) + t * (
        _take(slopes, at) + t * (_take(square, at) + t * _take(cube, at))
    )
