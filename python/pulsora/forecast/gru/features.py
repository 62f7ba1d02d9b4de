"""Features of a weight history for a recurrent forecaster: main directions, a row for each.

A history is m + 1 means of the weights over blocks of training; D [m, n] holds the displacements of
the earlier means from the latest. Only their inner products D D^T are needed here, m being 32 at
most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["AHEAD", "FEATURES", "LEAST", "MOST", "Basis", "basis", "features"]

FEATURES = 64
MOST = 32  # most displacements of a history
LEAST = 16
AHEAD = (1, 5, 16, 32)  # blocks ahead at which features take the learning rate
_DIRECTIONS = 16
_SMALLEST = 1e-10  # relative to the largest eigenvalue; smaller ones are rounding
_TIE = 1.0 - 2.0**-10
_WINDOWS = (4, 8, 16, 32)  # blocks over which features take displacements
_TINY = 1e-10


class Basis(NamedTuple):
    """The k main directions of displacements D.

    D = vectors diag(scales) Q^T, where Q [n, k] need not be formed.
    """

    scales: Floats
    """[k], falling: the singular values of D."""
    vectors: Floats
    """[m, k], orthonormal columns."""

    def path(self) -> Floats:
        """Displacements of the history from its latest mean along each direction, [k, m + 1].

        The last are 0.
        """
        return np.pad(self.scales[:, None] * self.vectors.T, ((0, 0), (0, 1)))

    def combination(self, move: Floats) -> Floats:
        """Factors a [m] with which D^T a is the given move [k] along the directions."""
        factors: Floats = self.vectors @ (move / self.scales)
        return factors


def basis(gram: Floats) -> Basis:
    """Up to 16 directions from the inner products D D^T [m, m]; none if nothing moved.

    The first of the largest elements of each vector is positive.
    """
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1][:_DIRECTIONS], vectors[:, ::-1][:, :_DIRECTIONS]
    kept = (values > 0.0) & (values > _SMALLEST * values[0])
    values, vectors = values[kept], vectors[:, kept]
    sizes = np.abs(vectors)
    first = np.argmax(sizes >= _TIE * sizes.max(0, initial=0.0), axis=0)
    signs = np.sign(vectors[first, np.arange(len(values))])
    return Basis(np.sqrt(values), vectors * signs)


def features(
    directions: Basis, losses: Sequence[float], rates: Sequence[float]
) -> tuple[NDArray[np.float32], Floats]:
    """The rows of features of the directions, and the unit in which each row counts.

    The unit of a row is the root mean square of the increments of its path from block to block.
    Features, in this order, all at most 10 in size:

    - 0, the place of the increment that is fed back;
    - 32 increments, the latest last, 0 where the history is shorter;
    - 8 of the losses, at most 3 in size: last, mean, standard deviation, least, largest, mean of
      the last 16 less the mean of the 16 before, their ratio less 1, log10 of the last;
    - displacements over the last 4, 8, 16 and 32 blocks over the roots of these numbers;
    - number of the row over 16; log10 of scale and unit, relative to the first row;
    - autocorrelation of the increments at distances 1 and 2;
    - distance from the mean of the last 16 blocks, and of the 16 before, over 4;
    - the learning rates; m / 32; 0.

    Args:
        directions: Of a history of 17 to 33 means.
        losses: Mean training losses of blocks, the latest last; the last 32 of them count.
        rates: Learning rates 1, 5, 16 and 32 blocks after the last, over the present rate.

    Returns:
        Rows [k, 64], and units [k].
    """
    path = directions.path()
    count, m = len(path), path.shape[1] - 1
    steps = np.diff(path)
    units = np.maximum(np.sqrt((steps**2).mean(1)), np.finfo(np.float64).tiny)
    z = np.zeros((count, MOST))
    z[:, MOST - m :] = steps / units[:, None]
    # Of the path, in units: how far it went in the last 0, 1, ... 32 blocks.
    gone = np.pad(z[:, ::-1].cumsum(1), ((0, 0), (1, 0)))
    columns = [
        np.zeros(count),
        *z.T,
        *np.broadcast_to(_of_losses(losses), (count, 8)).T,
        *(gone[:, width] / np.sqrt(width) for width in _WINDOWS),
        np.arange(count) / 16.0,
        np.log10(directions.scales / directions.scales[0] + _TINY),
        np.log10(units / units[0] + _TINY),
        (z[:, 1:] * z[:, :-1]).sum(1) / m,
        (z[:, 2:] * z[:, :-2]).sum(1) / m,
        gone[:, 1:17].mean(1) / 4.0,
        gone[:, 17:].mean(1) / 4.0,
        *(np.full(count, rate) for rate in rates),
        np.full(count, m / MOST),
    ]
    rows = np.zeros((count, FEATURES), np.float32)
    rows[:, : len(columns)] = np.clip(np.stack(columns, 1), -10.0, 10.0)
    return rows, units


def _of_losses(losses: Sequence[float]) -> Floats:
    given = np.asarray(losses, np.float64)[-MOST:]
    values = np.concatenate([np.full(MOST - len(given), given[0]), given])
    late, early = values[16:].mean(), values[:16].mean()
    last = values[-1]
    found = [last, values.mean(), values.std(ddof=1), values.min(), values.max(), late - early]
    found += [(late - early) / (abs(late) + _TINY), np.log10(abs(last) + _TINY)]
    clipped: Floats = np.clip(found, -3.0, 3.0)
    return clipped
