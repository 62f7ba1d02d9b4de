"""Likelihoods of conductances that were read at several times after programming."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = [
    "Cells",
    "inverse_of",
    "maximum",
    "power_law_density",
    "second_derivatives",
    "shift_density",
]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Cells:
    """Cells of one target that were read at the same times.

    Attributes:
        target: The conductance that was asked for, in uS.
        times: Seconds since the end of programming, ascending.
        readings: Conductances in uS, [cells, times].
    """

    target: float
    times: Numbers
    readings: Numbers

    def of(self, kept: NDArray[np.bool_]) -> Cells:
        """Returns some of the cells."""
        return Cells(self.target, self.times, self.readings[kept])


def power_law_density(cells: Cells, values: Numbers, t_0: float, t_read: float) -> Numbers:
    """Returns the log density of the readings of each cell under a power law.

    With the programmed conductance u, of N(target, sigma^2), readings are u (T / t_0)^-nu (1 + Q
    sqrt(L) xi), T = t + t_0, L = ln((T + t_read) / 2 t_read). Their logarithms, given u, are normal
    to second order in Q: mean ln u - mean(nu) x - Q^2 L / 2 with x = ln(T / t_0), covariance
    std(nu)^2 x x^T + Q^2 diag(L). The integral over u is taken by Gauss-Hermite nodes around the
    mode of each cell.

    Args:
        cells: The cells.
        values: ln sigma, mean of nu, ln std of nu, ln Q.
        t_0: Time from which drift counts, in s.
        t_read: Duration of a read, in s.
    """
    sigma, spread, q = np.exp(values[[0, 2, 3]])
    age = cells.times + t_0
    x = np.log(age / t_0)
    growth = np.log((age + t_read) / (2.0 * t_read))
    covariance = spread**2 * np.outer(x, x) + q**2 * np.diag(growth)
    inverse = np.linalg.inv(covariance)
    logs = np.log(cells.readings)
    rest = logs + values[1] * x + 0.5 * q**2 * growth
    weight = inverse.sum()
    centre = rest @ inverse.sum(axis=1) / weight
    outside = np.einsum("ci,ij,cj->c", rest, inverse, rest) - weight * centre**2
    constant = -0.5 * (len(x) * _LOG_TWO_PI + np.linalg.slogdet(covariance)[1] + outside)
    constant -= logs.sum(axis=1)  # densities of conductances, not of logarithms

    def inner(v: Numbers, centre: Numbers) -> Numbers:
        u = np.exp(v)
        deviation = (u - cells.target) / sigma
        density: Numbers = v - 0.5 * deviation**2 - 0.5 * weight * (v - centre) ** 2
        return density

    mode = centre.copy()
    for _ in range(30):
        u = np.exp(mode)
        slope = 1.0 - (u - cells.target) * u / sigma**2 - weight * (mode - centre)
        curvature = weight + np.maximum((2.0 * u - cells.target) * u, u * u * 0.1) / sigma**2
        step = np.clip(slope / curvature, -0.5, 0.5)
        mode += step
        if np.abs(step).max() < 1e-10:
            break
    u = np.exp(mode)
    width = 1.0 / np.sqrt(weight + np.maximum((2.0 * u - cells.target) * u, 1e-12) / sigma**2)
    points = mode[:, None] + width[:, None] * _NODES
    terms = inner(points, centre[:, None]) + 0.5 * _NODES**2 + np.log(_WEIGHTS)
    largest = terms.max(axis=1)
    integral = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + np.log(width)
    found: Numbers = constant + integral - math.log(sigma) - 0.5 * _LOG_TWO_PI
    return found


def shift_density(cells: Cells, values: Numbers) -> Numbers:
    """Returns the log density of the readings of each cell under a shift law.

    Deviations from the target are normal: mean and standard deviation of each time, and the
    correlation that the persistence gives (docs/reference/inference.md): r_s r_t + sqrt(1 - r_s^2)
    sqrt(1 - r_t^2) p^2 between two times, r_t = p min(sigma_first / sigma_t, 1), and r = 1 at the
    end of programming.

    Args:
        cells: The cells.
        values: The shift at each time, ln sigma at each time, and the persistence.
    """
    count = len(cells.times)
    shift, sigma, persistence = values[:count], np.exp(values[count : 2 * count]), values[-1]
    r = persistence * np.minimum(sigma[0] / sigma, 1.0)
    r[cells.times == 0.0] = 1.0
    own = np.sqrt(np.maximum(1.0 - r * r, 0.0))
    correlation = np.outer(r, r) + persistence**2 * np.outer(own, own)
    np.fill_diagonal(correlation, 1.0)
    covariance = correlation * np.outer(sigma, sigma)
    deviation = cells.readings - cells.target - shift
    sign, logarithm = np.linalg.slogdet(covariance)
    if sign <= 0.0:
        return np.full(len(deviation), -np.inf)
    squares = np.einsum("ci,ci->c", deviation, np.linalg.solve(covariance, deviation.T).T)
    found: Numbers = -0.5 * (squares + logarithm + count * _LOG_TWO_PI)
    return found


def maximum(
    density: Callable[[Numbers], Numbers], start: Numbers, limits: list[tuple[float, float]]
) -> tuple[Numbers, Numbers, float]:
    """Returns values that maximise a sum of log densities, their covariance, and the sum.

    The covariance is the inverse of the observed information, by differences of second order.
    Values at a limit, and those that the data do not tell, have NaN there.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - optional

    def cost(values: Numbers) -> float:
        total = -float(density(values).sum())
        return total if math.isfinite(total) else 1e300

    best = minimize(cost, start, method="L-BFGS-B", bounds=limits, options={"maxiter": 500})
    polished = minimize(
        cost, best.x, method="Nelder-Mead", bounds=limits,
        options={"xatol": 1e-6, "fatol": 1e-7, "maxiter": 400 * len(start)},
    )  # fmt: skip
    values: Numbers = polished.x if polished.fun < best.fun else best.x
    return values, _covariance(cost, values, limits), -min(polished.fun, best.fun)


def _covariance(
    cost: Callable[[Numbers], float], values: Numbers, limits: list[tuple[float, float]]
) -> Numbers:
    """Returns the inverse of the second derivatives of a cost; NaN for values at limits."""
    return inverse_of(second_derivatives(cost, values), values, limits)


def second_derivatives(cost: Callable[[Numbers], float], values: Numbers) -> Numbers:
    """Returns the second derivatives of a cost, by differences."""
    size, step = len(values), 1e-3

    def moved(*changes: tuple[int, int]) -> float:
        there = values.copy()
        for place, sign in changes:
            there[place] += sign * step
        return cost(there)

    at = cost(values)
    single = {(i, sign): moved((i, sign)) for i in range(size) for sign in (-1, 1)}
    found = np.zeros((size, size))
    for i in range(size):
        found[i, i] = (single[i, 1] - 2.0 * at + single[i, -1]) / step**2
        for j in range(i):
            mixed = moved((i, 1), (j, 1)) - single[i, 1] - single[j, 1] + 2.0 * at
            mixed += moved((i, -1), (j, -1)) - single[i, -1] - single[j, -1]
            found[i, j] = found[j, i] = mixed / (2.0 * step**2)
    return found


def inverse_of(derivatives: Numbers, values: Numbers, limits: list[tuple[float, float]]) -> Numbers:
    """Returns the inverse of second derivatives; NaN for values at limits."""
    free = [
        i
        for i, (low, high) in enumerate(limits)
        if values[i] - low > 2e-3 and high - values[i] > 2e-3
    ]
    found = np.full((len(values), len(values)), np.nan)
    try:
        inverse = np.linalg.inv(derivatives[np.ix_(free, free)])
    except np.linalg.LinAlgError:
        return found
    found[np.ix_(free, free)] = np.where(np.diag(inverse) > 0.0, inverse, np.nan)
    return found
