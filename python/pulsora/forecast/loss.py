"""A loss curve, continued as a power law of the steps made, with intervals.

The law is a straight line in log loss over log step, fitted by least squares to the last two thirds of the curve. Its intervals
are conformal: the law is fitted to every earlier part of the curve as well, and how far it was off there, in units of the
standard error of prediction of that fit, says how wide the interval has to be now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora._checks import require_at_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Values = NDArray[np.float64]

__all__ = ["LossForecast", "Reach", "forecast_loss"]

_LEAST = 10  # losses that a forecast needs
_SHORTEST = 6  # losses of the shortest earlier part of the curve that is fitted
_FARTHEST = 1000.0  # how many times as long as the curve a search for a loss goes on


@dataclass(frozen=True)
class Reach:
    """How many more steps it takes to a loss: 0 if it is reached already, infinity if never.

    Attributes:
        expected: By the law itself.
        earliest: Where the lower end of the interval reaches the loss.
        latest: Where its upper end does.
    """

    expected: float
    earliest: float
    latest: float


@dataclass(frozen=True)
class _Line:
    """log loss = height + slope (log step - centre), and how well it fits."""

    height: float
    slope: float
    centre: float
    variance: float  # of single losses around the line
    spread: float  # sum of squares of log step - centre
    count: int

    @classmethod
    def fitted(cls, losses: Values) -> _Line:
        """The line through the last two thirds of the logarithms."""
        first = len(losses) // 3
        x, y = np.log(np.arange(first + 1.0, len(losses) + 1.0)), losses[first:]
        centre, height = float(x.mean()), float(y.mean())
        spread = float(((x - centre) ** 2).sum())
        slope = float(((x - centre) * (y - height)).sum()) / spread
        rest = y - height - slope * (x - centre)
        # Rounding alone is behind a smaller one.
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


@dataclass(frozen=True)
class LossForecast:
    """How a loss curve is expected to go on. Print it for a summary.

    Attributes:
        observed: The losses so far, [n]; the first is that of step 1.
        steps: The steps ahead, n + 1 to n + ahead.
        expected: The loss expected there, [ahead].
        lower: Lower end of the interval there.
        upper: Its upper end.
        level: The probability with which a loss is to lie between lower and upper.
        exponent: b of the law loss = a step^-b; not above 0 where the loss does not fall.
        diverging: Whether the last losses rise above all that the losses before them let expect.
    """

    observed: Values
    steps: NDArray[np.int64]
    expected: Values
    lower: Values
    upper: Values
    level: float
    exponent: float
    diverging: bool
    _line: _Line
    _width: float

    def at(self, steps: ArrayLike) -> tuple[Values, Values, Values]:
        """Lower end, expectation and upper end after these steps, counted from the beginning."""
        return _interval(self._line, self._width, np.asarray(steps, np.float64))

    @property
    def left(self) -> float:
        """The share of the present loss, as the law has it, that the steps ahead will take off."""
        return 1.0 - float(self.expected[-1] / self.at(len(self.observed))[1])

    def reach(self, target: float) -> Reach:
        """How many more steps it takes until a loss is at most `target`.

        Raises:
            ValueError: unless the target is a positive number.
        """
        _require_loss("target", target)
        if self.observed[-1] <= target:
            return Reach(0.0, 0.0, 0.0)
        lower, expected, upper = (self._first(which, target) for which in range(3))
        return Reach(expected, lower, upper)

    def _first(self, which: int, target: float) -> float:
        """Steps from now until `at(...)[which]` is at most the target: among coarse steps, then between two of them."""
        now = len(self.observed)
        reached = target * (1.0 + 1e-9)  # or rounding decides
        coarse = np.unique((now * np.geomspace(1.0, _FARTHEST, 1001)).astype(np.int64))
        found = np.flatnonzero(self.at(coarse)[which] <= reached)
        if not len(found):
            return math.inf
        after = coarse[max(found[0] - 1, 0)]
        fine = np.arange(after + 1, coarse[found[0]] + 1) if found[0] else coarse[:1]
        return float(fine[np.flatnonzero(self.at(fine)[which] <= reached)[0]] - now)

    def __str__(self) -> str:
        last = self.observed[-1]
        text = (
            f"loss {last:.4g} after {len(self.observed)} steps; after {self.steps[-1]} it is "
            f"expected at {self.expected[-1]:.4g} ({self.lower[-1]:.4g} to {self.upper[-1]:.4g} "
            f"with probability {self.level:g}), {self.left:.1%} less than now"
        )
        return text + ("; warning: it is diverging" if self.diverging else "")


def forecast_loss(
    losses: Sequence[float] | ArrayLike, ahead: int, *, level: float = 0.9
) -> LossForecast:
    """Continues a loss curve.

    A step is whatever the losses are of: an epoch, or a block of mini-batches whose mean loss is given, all of one length. The
    forecast takes it that the training goes on as it did: a learning rate that starts to fall makes the loss fall faster.

    Args:
        losses: The losses so far, at least 10, positive.
        ahead: How many steps to look ahead, at least 1.
        level: The probability with which a loss is to lie within the interval, above 0 and below 1.

    Raises:
        ValueError: for fewer losses than 10 or than the level needs, for losses that are not finite (which a training has that
            diverged) or not positive, and for other values out of range.
    """
    curve = _curve(losses)
    require_at_least("ahead", ahead, 1)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be above 0 and below 1 (got {level})")
    return _forecast(curve, int(ahead), level, look_back=True)


def _forecast(curve: Values, ahead: int, level: float, *, look_back: bool) -> LossForecast:
    count = len(curve)
    logs = np.log(curve)
    line = _Line.fitted(logs)
    width = _width(logs, ahead, level)
    steps = np.arange(count + 1, count + 1 + ahead)
    lower, expected, upper = _interval(line, width, steps.astype(np.float64))
    return LossForecast(
        observed=curve,
        steps=steps,
        expected=expected,
        lower=lower,
        upper=upper,
        level=level,
        exponent=-line.slope,
        diverging=look_back and _is_diverging(curve, level),
        _line=line,
        _width=width,
    )


def _interval(line: _Line, width: float, steps: Values) -> tuple[Values, Values, Values]:
    middle, error = line.at(steps), line.error(steps)
    with np.errstate(over="ignore"):  # an interval may be without end
        return np.exp(middle - width * error), np.exp(middle), np.exp(middle + width * error)


def _width(logs: Values, ahead: int, level: float) -> float:
    """Half the width of the interval in standard errors: a quantile of what earlier fits were off by.

    Each looks ahead by the same share of its own curve.
    """
    count = len(logs)
    scores = []
    for origin in range(_SHORTEST, count):
        line = _Line.fitted(logs[:origin])
        end = min(origin + max(1, round(ahead * origin / count)), count)
        steps = np.arange(origin + 1.0, end + 1.0)
        scores.append(np.abs(logs[origin:end] - line.at(steps)) / line.error(steps))
    sorted_scores = np.sort(np.concatenate(scores))
    place = math.ceil((len(sorted_scores) + 1) * level)
    if place > len(sorted_scores):
        most = len(sorted_scores) / (len(sorted_scores) + 1)
        raise ValueError(
            f"level = {level}: these {count} losses allow for intervals up to level {most:.3f}; "
            "give more losses, or a lower level"
        )
    return float(sorted_scores[place - 1])


def _is_diverging(curve: Values, level: float) -> bool:
    """Whether the last tenth, and three losses at least, lie above what the losses before let expect, and have risen."""
    tail = max(3, len(curve) // 10)
    before = curve[:-tail]
    if len(before) < _LEAST:
        return False
    try:
        earlier = _forecast(before, tail, level, look_back=False)
    except ValueError:  # too few losses for the level
        return False
    above = bool((curve[-tail:] > earlier.upper).all())
    return above and float(curve[-tail:].mean()) > float(before[-tail:].mean())


def _curve(losses: Sequence[float] | ArrayLike) -> Values:
    curve: Any = np.array(losses, np.float64)
    if curve.ndim != 1 or len(curve) < _LEAST:
        raise ValueError(
            f"losses must be a list of at least {_LEAST} numbers (got shape {list(curve.shape)}); "
            "train on, or give the losses of shorter steps"
        )
    for step, loss in enumerate(curve.tolist(), 1):
        if not math.isfinite(loss):
            raise ValueError(
                f"losses[{step - 1}] is {loss}: the training has diverged; lower the learning rate"
            )
        _require_loss(f"losses[{step - 1}]", loss)
    result: Values = curve
    return result


def _require_loss(name: str, loss: float) -> None:
    if not 0.0 < loss < math.inf:
        raise ValueError(f"{name} must be a positive number (got {loss}): a power law has no other")
