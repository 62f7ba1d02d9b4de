"""The likelihood of readings: an extended Kalman filter over each cell's weight and its deviations.

The state of a cell is its weight and its deviations from the population (gain, asymmetry, ...). A
pulse adds the mean step of that weight and cell, and cycle noise; a reading adds read noise. At the
start of a cell's first trace the deviations are unknown, with the spread of the population; the
readings determine them on the way. The filter so sums up the likelihood of a mixed model, with the
deviations integrated out. All sets of parameters and all cells go through the filter at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pulsora.fit.models import Model
    from pulsora.fit.pulses import Pulses
    from pulsora.fit.setting import Setting

    Array = NDArray[np.float64]

__all__ = ["Filtered", "filtered", "predicted", "read_variance"]

_NUDGE = 1e-6  # difference quotients of steps: of the range, and of deviations
_LEAST_READ = 0.01  # read noise in mean steps: without any, the likelihood has no maximum
_FAR = 5.0  # standard deviations beyond which a bound does not count


@dataclass
class Filtered:
    """Results of the filter.

    Attributes:
        log_likelihood: Of the counted readings of each cell, [sets, cells].
        residuals: Readings minus their expectations, in standard deviations, of the first set,
            [steps, cells]; NaN where there are none.
    """

    log_likelihood: Array
    residuals: Array


def filtered(
    model: Model,
    setting: Setting,
    t: Mapping[str, Array],
    pulses: Pulses,
    counted: NDArray[np.bool_] | None = None,
) -> Filtered:
    """Runs the filter.

    Args:
        model: The device model.
        setting: Bounds and scale of the model.
        t: Free numbers, each [sets]: the model's, "noise" (dw_min_std), "read" (read noise in units
            of setting.step), and the spread of each of the model's effects under its name.
        pulses: The measured data.
        counted: Which readings the likelihood counts, [steps, cells]; by default all.
    """
    lanes = {name: np.asarray(value)[:, None] for name, value in t.items()}
    run = _run(model, setting, lanes, pulses)
    total = np.zeros(run.mean.shape[1:])
    read = np.broadcast_to(read_variance(lanes["read"], setting), total.shape)
    residuals = np.full(pulses.weights.shape, np.nan)
    for at, (row, direction) in enumerate(zip(pulses.weights, pulses.direction, strict=True)):
        starts = (direction == 0) & np.isfinite(row)
        if starts.any():
            run.begin(starts, np.where(starts, row, 0.0), read)
        if direction.any():
            run.pulse(direction)
        seen = (direction != 0) & np.isfinite(row)
        if not seen.any():
            continue
        variance = run.covariance[0, 0] + read
        error = np.where(seen, row - run.mean[0], 0.0)
        gain = np.where(seen, run.covariance[0] / variance, 0.0)
        run.mean += gain * error
        run.covariance -= gain[:, None] * run.covariance[0][None]
        one = -0.5 * (np.log(2.0 * np.pi * variance) + error * error / variance)
        total += np.where(seen if counted is None else seen & counted[at], one, 0.0)
        residuals[at] = np.where(seen, error[0] / np.sqrt(variance[0]), np.nan)
    return Filtered(total, residuals)


def _run(model: Model, setting: Setting, lanes: Mapping[str, Array], pulses: Pulses) -> _Run:
    effects = list(model.effects)
    shape = next(iter(lanes.values())).shape[0], len(pulses.cells)
    spreads = [np.broadcast_to(lanes[name] ** 2, shape) for name in effects]
    return _Run(model, setting, lanes, effects, shape, spreads)


def read_variance(read: Array, setting: Setting) -> Array:
    """The variance of the noise of a reading, from the free number "read"."""
    variance: Array = (read * read + _LEAST_READ**2) * setting.step**2
    return variance


class _Run:
    """State: `mean` [state, sets, cells] and `covariance` [state, state, sets, cells]."""

    def __init__(
        self, model: Model, setting: Setting, t: Mapping[str, Array], effects: list[str],
        shape: tuple[int, int], spreads: list[Array],
    ) -> None:  # fmt: skip
        self.model, self.setting, self.t, self.effects = model, setting, t, effects
        self.mean = np.zeros((1 + len(effects), *shape))
        self.covariance = np.zeros((1 + len(effects), 1 + len(effects), *shape))
        for i, spread in enumerate(spreads, 1):
            self.covariance[i, i] = spread
        # The state itself, and one copy for each quantity that is nudged.
        self.nudges = np.zeros((2 + len(effects), 1 + len(effects), 1, 1))
        self.nudge = np.full((1 + len(effects), 1, 1), _NUDGE)
        self.nudge[0] = _NUDGE * (setting.high - setting.low)
        for i in range(1 + len(effects)):
            self.nudges[i + 1, i] = self.nudge[i]

    def begin(self, cells: NDArray[np.bool_], weights: Array, variance: Array) -> None:
        """Takes the first reading of a trace as the weight: nothing else is known of it."""
        self.mean[0] = np.where(cells, weights, self.mean[0])
        self.covariance[0] = np.where(cells, 0.0, self.covariance[0])
        self.covariance[:, 0] = np.where(cells, 0.0, self.covariance[:, 0])
        self.covariance[0, 0] = np.where(cells, variance, self.covariance[0, 0])

    def pulse(self, direction: NDArray[np.int8]) -> None:
        """Applies a pulse to the state; cells with direction 0 had none."""
        if self.model.hard:  # read noise may have moved the belief beyond a bound
            mean, variance, inside = self._confined(self.mean[0], self.covariance[0, 0])
            self.mean[0] = mean
            self.covariance[0] = inside * self.covariance[0]
            self.covariance[:, 0] = self.covariance[0]
            self.covariance[0, 0] = variance
        state = self.mean[None] + self.nudges
        steps, noise = self._steps(state, direction)
        slopes = (steps[1:] - steps[0]) / self.nudge
        slopes[0] += 1.0
        row = (slopes[:, None] * self.covariance).sum(axis=0)
        variance = (slopes * row).sum(axis=0) + noise
        mean = self.mean[0] + steps[0]
        if self.model.hard:
            mean, variance, inside = self._confined(mean, variance)
            row *= inside
        moved = direction != 0
        self.mean[0] = np.where(moved, mean, self.mean[0])
        new = np.where(moved, row[1:], self.covariance[0, 1:])
        self.covariance[0, 1:] = new
        self.covariance[1:, 0] = new
        self.covariance[0, 0] = np.where(moved, variance, self.covariance[0, 0])

    def _steps(self, state: Array, direction: NDArray[np.int8]) -> tuple[Array, Array]:
        """Signed mean steps of all states, and the variance of the cycle noise of the first."""
        weights = state[:, 0]
        e = {name: state[:, i] for i, name in enumerate(self.effects, 1)}
        found: list[tuple[bool, Array, Array]] = []
        for up in (True, False):
            if (direction == (1 if up else -1)).any():
                steps = self.model.step(self.t, e, self.setting, weights, up)
                spread = self.model.spread(self.t, self.setting, weights[0], up)
                noise = (self.t["noise"] * spread * steps[0]) ** 2
                found.append((up, steps if up else -steps, noise))
        if len(found) == 1:
            return found[0][1], found[0][2]
        up = direction == 1
        return np.where(up, found[0][1], found[1][1]), np.where(up, found[0][2], found[1][2])

    def _confined(self, mean: Array, variance: Array) -> tuple[Array, Array, Any]:
        """Moments after clipping at the bounds, and the share of the weights not clipped."""
        e = dict(zip(self.effects, self.mean[1:], strict=True))
        low, high = self.model.bounds(self.t, e, self.setting)
        sd = np.sqrt(variance) + 1e-300
        below, above = (low - mean) / sd, (high - mean) / sd
        if (below < -_FAR).all() and (above > _FAR).all():
            return mean, variance, 1.0
        from scipy.special import ndtr  # noqa: PLC0415 - optional

        share_below, share_above = ndtr(below), ndtr(-above)
        inside = np.maximum(1.0 - share_below - share_above, 0.0)
        b, a = np.clip(below, -40.0, 40.0), np.clip(above, -40.0, 40.0)
        density_below, density_above = (np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi) for x in (b, a))
        # In standard deviations from the mean before clipping.
        first = b * share_below + a * share_above + density_below - density_above
        second = (
            b * b * share_below
            + a * a * share_above
            + inside
            + b * density_below
            - a * density_above
        )
        spread = np.maximum(second - first * first, 0.0)
        far = (share_below > 1.0 - 1e-12) | (share_above > 1.0 - 1e-12)
        confined = np.where(far, np.clip(mean, low, high), mean + sd * first)
        return confined, np.where(far, 0.0, variance * spread), np.where(far, 0.0, inside)


def predicted(model: Model, setting: Setting, t: Mapping[str, Array], pulses: Pulses) -> Array:
    """Mean weights after each pulse, from the first reading of each trace alone, [steps, cells].

    They are the means of many cells of the device, with its noise and spreads.
    """
    lanes = {name: np.asarray(value)[:1, None] for name, value in t.items()}
    run = _run(model, setting, lanes, pulses)
    read = read_variance(lanes["read"], setting)
    path = np.full(pulses.weights.shape, np.nan)
    for at, (row, direction) in enumerate(zip(pulses.weights, pulses.direction, strict=True)):
        starts = (direction == 0) & np.isfinite(row)
        run.begin(starts, np.where(starts, row, 0.0), read)
        if direction.any():
            run.pulse(direction)
        path[at] = np.where(starts | (direction != 0), run.mean[0, 0], np.nan)
    return path
