"""Moves of the weights, predicted by a trained recurrent ensemble."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from pulsora.forecast.gru.ensemble import Ensemble
from pulsora.forecast.gru.features import AHEAD, FEATURES, LEAST, MOST, basis, features
from pulsora.forecast.gru.rollout import rollout

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from pulsora.forecast.history import History

    Values = list[Tensor]
    Floats = NDArray[np.float64]

__all__ = ["GRUForecaster"]

_MOST_STEPS = 75  # of a rollout
_DOUBT = 0.5  # largest spread of the members, over their mean, at which a move is made
_PART = 1 << 20  # elements of a weight that are processed at a time


class GRUForecaster:
    """Continues the history along its main directions by an ensemble of gated recurrent units.

    The directions are the main ones of the displacements of earlier block means from the latest, at
    most 16. The ensemble sees a row of features for each and continues it block by block. Members
    disagree more the farther they look; where their spread exceeds half of their mean, a shorter
    move is made. The first block leads from the mean of the latest block to the present weights,
    and is not part of the move.

    Args:
        ensemble: Continues the rows of 64 features; by default the ensemble of the package.
        alpha: Factor of the moves; 2 by default.

    Raises:
        ValueError: for an ensemble with other features.
    """

    name = "gru"
    blocks = 6
    kept = MOST + 1
    least = LEAST + 1

    def __init__(self, ensemble: Ensemble | None = None, alpha: float | None = None) -> None:
        self._ensemble = Ensemble.trained() if ensemble is None else ensemble
        self._alpha = 2.0 if alpha is None else alpha
        given = self._ensemble.encoder.shape[1]
        if given != FEATURES:
            raise ValueError(
                f"ensemble takes rows of {given} features; histories give {FEATURES} "
                "(scripts/train_forecaster.py)"
            )

    def __call__(self, history: History, steps: int) -> Values:
        """The move for `steps` steps.

        Raises:
            ValueError: if the weights are not finite.
        """
        means = history.blocks.means
        gram = _gram(means)
        if not np.isfinite(gram).all():
            raise ValueError(
                "the weights are not finite: training diverged; lower the learning rate"
            )
        directions = basis(gram)
        if len(directions.scales) == 0:
            return [torch.zeros_like(value) for value in means[-1]]
        rates = history.rates([ahead * history.block for ahead in AHEAD])
        rows, units = features(directions, history.losses, rates)
        ahead = min(max(round(steps / history.block), 2), _MOST_STEPS)
        made = rollout(self._ensemble, rows, ahead)
        move = believed(made.mean.astype(np.float64) * units[:, None])
        return _combined(means, directions.combination(self._alpha * move))

    def __repr__(self) -> str:
        return f"gru(alpha={self._alpha:g}, ensemble={_fingerprint(self._ensemble)})"


def believed(paths: Floats) -> Floats:
    """The move [k] from the first block to the latest on which the members agree.

    Paths of the members are [E, k, J], with J at least 2.
    """
    mean = paths.mean(0)
    spread = np.sqrt(((paths - mean) ** 2).mean(0).sum(0))
    agreed = np.flatnonzero(spread <= _DOUBT * np.sqrt((mean**2).sum(0)))
    blocks = max(agreed[-1] + 1 if len(agreed) else 0, 2)
    move: Floats = (mean[:, blocks - 1] - mean[:, 0]) * (blocks / (blocks - 1))
    return move


def _gram(means: list[Values]) -> Floats:
    """The inner products [m, m] of the displacements of all means from the latest."""
    total = np.zeros((len(means) - 1, len(means) - 1))
    for values in zip(*means, strict=True):
        for parts in zip(*(value.reshape(-1).split(_PART) for value in values), strict=True):
            rows = (torch.stack(parts[:-1]) - parts[-1]).double()
            total += (rows @ rows.T).cpu().numpy()
    return total


def _combined(means: list[Values], factors: Floats) -> Values:
    """The sum of the displacements of all means from the latest, each with its factor."""
    latest = means[-1]
    total = [torch.zeros_like(value) for value in latest]
    for mean, factor in zip(means[:-1], factors.tolist(), strict=True):
        for into, value, end in zip(total, mean, latest, strict=True):
            into.add_(value - end, alpha=factor)
    return total


def _fingerprint(ensemble: Ensemble) -> str:
    """A text that identifies an ensemble."""
    found = 0
    for array in ensemble.arrays().values():
        found = zlib.crc32(array.tobytes(), found)
    return f"{found:08x}"
