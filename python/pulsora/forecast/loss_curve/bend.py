"""Bend of a loss curve away from a power law: a parabola in log loss over log step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

__all__ = ["Bend", "student_quantile"]

_FALSE = 0.01
"""Probability that a curve which follows the law, with independent errors, is found to bend."""


@dataclass(frozen=True)
class Bend:
    """log loss = height + slope x + curvature x^2 for x = log step - centre.

    Attributes:
        count: Number of losses.
        has_turned: Whether the parabola has a minimum within the fitted losses, and its rise at the
            end is beyond chance.
    """

    height: float
    slope: float
    curvature: float
    centre: float
    count: int
    has_turned: bool

    @classmethod
    def found(cls, logs: Values) -> Bend | None:
        """The bend of the last two thirds of the logarithms; None unless it is beyond chance."""
        first = len(logs) // 3
        x = np.log(np.arange(first + 1.0, len(logs) + 1.0))
        centre = float(x.mean())
        x -= centre
        columns = np.stack([np.ones_like(x), x, x**2], axis=1)
        inverse = np.linalg.inv(columns.T @ columns)
        height, slope, curvature = (inverse @ (columns.T @ logs[first:])).tolist()
        rest = logs[first:] - columns @ np.array([height, slope, curvature])
        freedom = len(x) - 3
        # A smaller variance is rounding alone, as of the law.
        covariance = inverse * max(float((rest**2).sum()) / freedom, 1e-24)
        beyond = student_quantile(1.0 - _FALSE / 2.0, freedom)
        if abs(curvature) <= beyond * math.sqrt(covariance[2, 2]):
            return None
        # d log loss / d log step at both ends, and the standard error at the last.
        before, now = (slope + 2.0 * curvature * end for end in (x[0], x[-1]))
        towards = np.array([0.0, 1.0, 2.0 * x[-1]])
        error = math.sqrt(towards @ covariance @ towards)
        has_turned = bool(before < 0.0 and now > beyond * error)
        return cls(height, slope, curvature, centre, len(logs), has_turned)

    def at(self, steps: Values) -> Values:
        """log loss of the parabola after these steps."""
        x = np.log(steps) - self.centre
        found: Values = self.height + self.slope * x + self.curvature * x**2
        return found

    def staying(self, steps: Values) -> Values:
        """log loss of the parabola, which stays from the last loss on."""
        return self.at(np.minimum(steps, self.count))


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, by the expansion in 1 / freedom.

    From 4 degrees of freedom on it is right to 2 % up to a probability of 0.995.
    """
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4.0 * freedom)
        + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
        + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * freedom**3)
    )
