"""The likelihood of conductances that approach a resting value exponentially."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pulsora.fit.retention_model import inverse_of, second_derivatives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pulsora.fit.retention_model import Cells

    Numbers = NDArray[np.float64]

__all__ = ["leak_density", "leak_maximum"]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_LOG_TWO_PI = math.log(2.0 * math.pi)
_STEP = 1e-3  # of differences


class LeakDensity:
    """The log density of the readings of each cell under the law of `noise_models.Exponential`.

    With the programmed conductance u, of N(target, sigma^2), and z standard normal, a reading is
    m (1 + Q xi), m = rest + (u - rest) d, d = exp(-t exp(tau_std z) / tau). Given z, readings are
    normal, with Q m taken at the likeliest u, so that the integral over u has a closed form. The
    integral over z is taken by Gauss-Hermite nodes around the mode of each cell.
    """

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.mode = np.zeros(len(cells.readings))  # of the last call, where the next one begins

    def __call__(self, values: Numbers) -> Numbers:
        """Returns the log densities. `values` are ln sigma, ln tau, ln tau_std, ln Q, rest."""

        def inner(z: Numbers) -> Numbers:
            return self._given(z, values) - 0.5 * z * z

        mode = self.mode.copy()
        ahead = np.array([-_STEP, 0.0, _STEP])
        curvature = np.ones_like(mode)
        for _ in range(12):
            low, at, high = inner(mode[:, None] + ahead).T
            curvature = np.maximum((2.0 * at - low - high) / _STEP**2, 1.0)
            step = np.clip((high - low) / (2.0 * _STEP) / curvature, -1.0, 1.0)
            mode += step
            if np.abs(step).max() < 1e-4:
                break
        self.mode = np.clip(mode, -8.0, 8.0)
        width = 1.0 / np.sqrt(curvature)
        points = mode[:, None] + width[:, None] * _NODES
        terms = inner(points) + 0.5 * _NODES**2 + np.log(_WEIGHTS)
        largest = terms.max(axis=1)
        integral = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + np.log(width)
        found: Numbers = integral - 0.5 * _LOG_TWO_PI
        return found

    def _given(self, z: Numbers, values: Numbers) -> Numbers:
        """Returns the log density of each cell's readings for each z, [cells, nodes]."""
        sigma, tau, spread, q = np.exp(values[:4])
        rest = values[4]
        times, target = self.cells.times, self.cells.target
        readings = self.cells.readings[:, None, :]
        rate = np.exp(np.clip(spread * z, -50.0, 50.0)) / tau
        d = np.exp(-np.minimum(rate[..., None] * times, 700.0))
        start = rest * (1.0 - d)
        weight = d / readings**2
        likely = ((readings - start) * weight).sum(axis=-1) / np.maximum(
            (d * weight).sum(axis=-1), 1e-300
        )
        level = start + np.clip(likely, 0.1 * target, 10.0 * target)[..., None] * d
        precision = 1.0 / np.maximum(q * level, 1e-9 * target) ** 2
        deviation = readings - start - target * d
        own = (d * d * precision).sum(axis=-1) * sigma**2
        along = (deviation * d * precision).sum(axis=-1) * sigma
        square = (deviation**2 * precision).sum(axis=-1) - along**2 / (1.0 + own)
        logs = np.log(precision).sum(axis=-1) - np.log1p(own)
        found: Numbers = -0.5 * (square - logs + len(times) * _LOG_TWO_PI)
        return found


def leak_density(cells: Cells, values: Numbers) -> Numbers:
    """Returns LeakDensity of these cells for these values."""
    return LeakDensity(cells)(values)


class _Leaks:
    """LeakDensity of several targets as a function of one list of values.

    Values are ln sigma, ln tau, ln tau_std and ln Q of each target, then the rest that all have,
    in `unit`.
    """

    def __init__(self, cells: Sequence[Cells], unit: float) -> None:
        self.cells = cells
        self.densities = [LeakDensity(each) for each in cells]
        self.scale = np.array([1.0, 1.0, 1.0, 1.0, unit])
        self.size = 4 * len(cells) + 1

    def places(self, node: int) -> list[int]:
        """Returns the places of the values of a target."""
        return [*range(4 * node, 4 * node + 4), self.size - 1]

    def of_cells(self, node: int, five: Numbers) -> Numbers:
        """Returns the log density of each cell of a target for its five values."""
        return self.densities[node](five * self.scale)

    def total(self, values: Numbers) -> float:
        """Returns the log density of all readings."""
        sums = [
            float(self.of_cells(node, values[self.places(node)]).sum())
            for node in range(len(self.cells))
        ]
        return sum(sums) if all(map(math.isfinite, sums)) else -math.inf

    def scores(self, values: Numbers) -> Numbers:
        """Returns the derivatives of the log density of each cell, [cells of all, values]."""
        blocks = []
        for node, cells in enumerate(self.cells):
            five = values[self.places(node)]
            block = np.zeros((len(cells.readings), self.size))
            for at, place in enumerate(self.places(node)):
                ahead = 1e-4 * np.eye(5)[at]
                up, down = (self.of_cells(node, five + sign * ahead) for sign in (1, -1))
                block[:, place] = (up - down) / 2e-4
            blocks.append(block)
        return np.concatenate(blocks)

    def curvature(self, values: Numbers) -> Numbers:
        """Returns the second derivatives of the negative log density of all readings."""
        found = np.zeros((self.size, self.size))
        for node in range(len(self.cells)):

            def cost(five: Numbers, node: int = node) -> float:
                return -float(self.of_cells(node, five).sum())

            places = self.places(node)
            found[np.ix_(places, places)] += second_derivatives(cost, values[places])
        return found


def leak_maximum(cells: Sequence[Cells]) -> tuple[Numbers, Numbers]:
    """Returns the likeliest numbers of LeakDensity, [targets, 5], and their standard errors.

    All targets have one rest. Steps are those of the scores of single cells (Berndt, Hall, Hall and
    Hausman, 1974), damped until they gain.
    """
    longest = max(float(each.times[-1]) for each in cells)
    unit = 0.01 * max(float(each.readings.mean()) for each in cells)
    leaks = _Leaks(cells, unit)
    limits: list[tuple[float, float]] = []
    for each in cells:
        limits += [
            (math.log(1e-6 * each.target), math.log(10.0 * each.target)),
            (math.log(1e-4 * longest), math.log(1e4 * longest)),
            (math.log(1e-4), math.log(3.0)),
            (math.log(1e-6), 0.0),
        ]
    limits.append((0.0, 100.0))
    low, high = np.array(limits).T
    values = np.clip(_leak_start(cells, unit), low, high)
    reached, damping = leaks.total(values), 1e-3
    for _ in range(40):
        each_score = leaks.scores(values)
        slope, square = each_score.sum(axis=0), each_score.T @ each_score
        gained = 0.0
        while damping < 1e8:
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1.0), slope)
            there = np.clip(values + np.clip(step, -1.0, 1.0), low, high)
            found = leaks.total(there)
            if found > reached:
                gained, reached, values = found - reached, found, there
                damping = max(0.2 * damping, 1e-6)
                break
            damping *= 5.0
        if gained < 1e-4:
            break
    errors = np.sqrt(np.diag(inverse_of(leaks.curvature(values), values, limits)))
    places = [leaks.places(node) for node in range(len(cells))]
    return values[places] * leaks.scale, errors[places] * leaks.scale


def _leak_start(cells: Sequence[Cells], unit: float) -> Numbers:
    """Returns logarithms of sigma, tau, tau_std and Q of each target, and the rest, in `unit`."""
    later = np.concatenate([each.times[each.times > 0.0] for each in cells])
    taus = np.geomspace(0.1 * later.min(), 100.0 * later.max(), 300)
    means = [each.readings.mean(axis=0) for each in cells]
    rests = np.linspace(0.0, 1.0, 101) * min(float(mean.max()) for mean in means)
    errors = []
    for each, mean in zip(cells, means, strict=True):
        left = np.exp(-each.times / taus[:, None])  # [taus, times]
        seen = rests[:, None, None] + (each.target - rests[:, None, None]) * left
        errors.append((((seen - mean) / mean) ** 2).sum(axis=-1))  # [rests, taus]
    best = int(np.argmin(sum(error.min(axis=1) for error in errors)))
    start = []
    for each, mean, error in zip(cells, means, errors, strict=True):
        sigma = max(each.target * float(each.readings[:, 0].std()) / mean[0], 1e-3 * each.target)
        start += [math.log(sigma), math.log(taus[int(np.argmin(error[best]))])]
        start += [math.log(0.1), math.log(0.01)]
    return np.array([*start, rests[best] / unit])
