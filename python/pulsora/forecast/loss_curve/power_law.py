"""Power law of a loss curve: a straight line in log loss over log step, by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

__all__ = ["PowerLaw"]


@dataclass(frozen=True)
class PowerLaw:
    """log loss = height + slope (log step - centre), and how well it fits. Steps count from 1."""

    height: float
    slope: float
    centre: float
    variance: float  # of single losses around the line
    spread: float  # sum of squares of log step - centre
    count: int

    @classmethod
    def fitted(cls, losses: Values) -> PowerLaw:
        """The line through the last two thirds of the logarithms."""
        first = len(losses) // 3
        x, y = np.log(np.arange(first + 1.0, len(losses) + 1.0)), losses[first:]
        centre, height = float(x.mean()), float(y.mean())
        spread = float(((x - centre) ** 2).sum())
        slope = float(((x - centre) * (y - height)).sum()) / spread
        rest = y - height - slope * (x - centre)
        # A smaller variance is rounding alone.
        variance = max(float((rest**2).sum()) / (len(x) - 2), 1e-24)
        return cls(height, slope, centre, variance, spread, len(x))

    def at(self, steps: Values) -> Values:
        """log loss after these steps."""
        line: Values = self.height + self.slope * (np.log(steps) - self.centre)
        return line

    def error(self, steps: Values) -> Values:
        """Standard error of the prediction of a single log loss there."""
        lever = 1.0 / self.count + (np.log(steps) - self.centre) ** 2 / self.spread
        error: Values = np.sqrt(self.variance * (1.0 + lever))
        return error
