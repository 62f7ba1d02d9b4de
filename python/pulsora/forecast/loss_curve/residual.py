"""Residual of a power law (log loss less law), predicted by a trained recurrent ensemble.

Times count in multiples of the length n of the curve, so that a forecast does not depend on how
long a step is. The future is STEPS points n 4^(j / STEPS), up to four times the length; the past is
32 windows, of equal width in log time, back to n / 12.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsora.forecast.gru.ensemble import Ensemble
from pulsora.forecast.gru.rollout import rollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pulsora.forecast.loss_curve.power_law import PowerLaw

    Values = NDArray[np.float64]

__all__ = ["FEATURES", "STEPS", "UNIT", "Residual", "continued", "features", "future", "trained"]

FEATURES = 64
STEPS = 24
UNIT = 0.1
"""In which residuals count."""
_WINDOWS = 32
_FARTHEST = 4.0  # times the length of the curve
_OLDEST = 1.0 / 12.0
_PAST_RATES = (0.125, 0.25, 0.5, 0.75)
_LEAST_NOISE = 1e-3  # floor, so that curves without noise have a finite logarithm
_OCTAVES = 8.0  # learning rates count as at most so many factors of 2 below the present one
_TINY = 1e-12


@functools.cache
def trained() -> Ensemble:
    """The ensemble that comes with the package (scripts/train_loss_forecaster.py)."""
    return Ensemble.load(Path(__file__).with_name("loss_ensemble.safetensors"))


def future(count: int) -> Values:
    """The times [STEPS] after the beginning at which a curve of `count` losses is forecast."""
    times: Values = count * _FARTHEST ** (np.arange(1.0, STEPS + 1.0) / STEPS)
    return times


def features(logs: Values, law: PowerLaw, rates: Values | None) -> NDArray[np.float32]:
    """The row [64] of features of a curve.

    In this order, all at most 10 in size:

    - 0, the place of the increment that is fed back;
    - mean residuals of 32 windows, in units;
    - the slope of the law; log10 of the standard deviation of losses around it; the standard
      deviation of differences between neighbouring residuals, over root 2;
    - log10 of n, and log loss of the law now, both over 3;
    - log2 of the learning rates at 1/8, 1/4, 1/2 and 3/4 of the curve and at every second point of
      the future, over the present rate, over 4;
    - 1 if the rates are known, and 0 if they are not;
    - 0.

    Args:
        logs: Logarithms of the losses, [n].
        law: Fitted to them.
        rates: Learning rates of the steps 1, 2, ..., beyond n as far as they are known, the last
            one from there on; or None.
    """
    count = len(logs)
    steps = np.arange(1.0, count + 1.0)
    past = (logs - law.at(steps)) / UNIT
    edges = count * _OLDEST ** (np.arange(_WINDOWS, -1.0, -1.0) / _WINDOWS)
    # The mean of a window is exact for a curve that is constant from step to step.
    sums = np.interp(edges, np.arange(count + 1.0), np.pad(past.cumsum(), (1, 0)))
    columns = [
        np.zeros(1),
        np.diff(sums) / np.diff(edges),
        [law.slope, np.log10(law.variance**0.5 + _LEAST_NOISE), np.diff(past).std() / np.sqrt(2.0)],
        [np.log10(count) / 3.0, float(law.at(np.array([float(count)]))[0]) / 3.0],
        _of_rates(count, rates),
        [float(rates is not None)],
    ]
    row = np.zeros(FEATURES, np.float32)
    flat = np.concatenate(columns)
    row[: len(flat)] = np.clip(flat, -10.0, 10.0)
    return row


def _of_rates(count: int, rates: Values | None) -> Values:
    times = np.concatenate([count * np.array(_PAST_RATES), future(count)[1::2]])
    if rates is None:
        return np.zeros(len(times))
    places = np.clip(np.round(times).astype(np.int64), 1, len(rates)) - 1
    now = max(float(rates[min(count, len(rates)) - 1]), _TINY)
    found: Values = np.log2(np.maximum(rates[places] / now, 2.0**-_OCTAVES)) / 4.0
    return found


class Residual(NamedTuple):
    """The residual added to the logarithm of a law.

    It is 0 up to now, linear between the points of the future, and constant after the last.
    """

    times: Values
    """[1 + STEPS], from now on."""
    values: Values
    """[1 + STEPS], the first 0."""

    def at(self, steps: Values) -> Values:
        """The residual after these steps."""
        found: Values = np.interp(steps, self.times, self.values)
        return found


def continued(
    ensemble: Ensemble, curves: Sequence[Values], laws: Sequence[PowerLaw], rates: Values | None
) -> list[Residual]:
    """Future residuals of curves that begin together and have the same learning rates.

    Raises:
        ValueError: for an ensemble with other features.
    """
    given = ensemble.encoder.shape[1]
    if given != FEATURES:
        raise ValueError(
            f"residual takes rows of {given} features; loss curves give {FEATURES} "
            "(scripts/train_loss_forecaster.py)"
        )
    rows = np.stack([features(*pair, rates) for pair in zip(curves, laws, strict=True)])
    means = rollout(ensemble, rows, STEPS).expected
    return [
        Residual(
            np.append(len(curve), future(len(curve))),
            np.append(0.0, UNIT * mean.astype(np.float64)),
        )
        for curve, mean in zip(curves, means, strict=True)
    ]
