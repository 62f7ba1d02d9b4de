"""Continues a loss curve as a power law of the steps made, with intervals.

The law is a straight line in log loss over log step, fitted by least squares to the last two thirds
of the curve. A trained ensemble can add the residual of the law. The intervals are conformal: every
earlier part of the curve is continued in the same way, and the errors, in units of the standard
error of prediction of its fit, give the width of the interval now. Where a curve bends away from
the law, the interval also covers the bend and a loss that stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pulsora._internal.checks import require_at_least
from pulsora.forecast.loss_curve.bend import Bend, student_quantile
from pulsora.forecast.loss_curve.power_law import PowerLaw
from pulsora.forecast.loss_curve.residual import continued, trained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from pulsora.forecast.gru.ensemble import Ensemble
    from pulsora.forecast.loss_curve.residual import Residual

    Values = NDArray[np.float64]

__all__ = ["LEAST", "LossForecast", "Reach", "forecast_loss", "leaves_less"]

LEAST = 10
"""Losses that a forecast needs."""
_SHORTEST = 6  # losses of the shortest earlier part of the curve that is fitted
_FEW = 30  # losses below which the parts are too few to tell the width of the interval
_MOST_PARTS = 300  # earlier parts of a curve that are fitted, evenly spread over longer ones
_FARTHEST = 1000.0  # farthest step that a search for a loss looks at, in lengths of the curve


@dataclass(frozen=True)
class Reach:
    """Steps left until a loss is reached: 0 if it is reached already, infinity if never.

    Attributes:
        expected: By the law itself.
        earliest: Where the lower end of the interval reaches the loss.
        latest: Where the upper end reaches the loss.
    """

    expected: float
    earliest: float
    latest: float


@dataclass(frozen=True)
class _Outlook:
    """A law, its residual, the half-width of the interval in standard errors, and a bend."""

    law: PowerLaw
    residual: Residual | None
    width: float
    bend: Bend | None = None

    def at(self, steps: Values) -> tuple[Values, Values, Values]:
        """Lower end, expectation and upper end."""
        middle = _continued(self.law, self.residual, steps)
        half = self.width * self.law.error(steps)
        ways = [middle]
        if self.bend is not None:
            ways += [self.bend.at(steps), self.bend.staying(steps)]
        with np.errstate(over="ignore"):  # an interval may be infinite
            return (
                np.exp(np.min(ways, axis=0) - half),
                np.exp(middle),
                np.exp(np.max(ways, axis=0) + half),
            )


@dataclass(frozen=True)
class LossForecast:
    """How a loss curve is expected to go on. Print it for a summary.

    Attributes:
        observed: The losses so far, [n], from step 1.
        steps: The steps ahead, n + 1 to n + ahead.
        expected: The loss expected at these steps, [ahead].
        lower: Lower end of the interval at these steps.
        upper: Upper end of the interval at these steps.
        level: The probability with which a loss is to lie between lower and upper.
        exponent: b of the law loss = a step^-b; not above 0 where the loss does not fall.
        diverging: Whether the last losses rise above the interval that follows from the losses
            before.
        follows_law: Whether the losses so far bend no more than chance allows. Otherwise the
            expected losses are not to be trusted; the interval then also covers the bend, as a
            parabola in log loss over log step, and a loss that stays as it is. Always true with a
            residual, which bends by itself.
        turned: Whether the losses have passed a minimum and rise, as of a validation set where a
            model overfits.
    """

    observed: Values
    steps: NDArray[np.int64]
    expected: Values
    lower: Values
    upper: Values
    level: float
    exponent: float
    diverging: bool
    follows_law: bool
    turned: bool
    _outlook: _Outlook

    def at(self, steps: ArrayLike) -> tuple[Values, Values, Values]:
        """Lower end, expectation and upper end after these steps, counted from the beginning.

        Raises:
            ValueError: for a step below 1, the step of the first loss.
        """
        wanted = np.asarray(steps, np.float64)
        if not (wanted >= 1.0).all():
            raise ValueError(f"steps = {steps!r}: the first step of a curve is 1")
        return self._outlook.at(wanted)

    @property
    def left(self) -> float:
        """The share of the present loss by which, by the law, the steps ahead will lower it."""
        return 1.0 - float(self.expected[-1] / self.at(len(self.observed))[1])

    def reach(self, target: float) -> Reach:
        """Steps left until a loss is at most `target`.

        Raises:
            ValueError: unless the target is a positive number.
        """
        _require_loss("target", target)
        if self.observed[-1] <= target:
            return Reach(0.0, 0.0, 0.0)
        lower, expected, upper = (self._first(which, target) for which in range(3))
        return Reach(expected, lower, upper)

    def _first(self, which: int, target: float) -> float:
        """Steps from now until `at(...)[which]` is at most the target.

        Searches coarse steps first, then between two of them.
        """
        now = len(self.observed)
        reached = target * (1.0 + 1e-9)  # tolerance for rounding
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
            f"with probability {self.level:g}), {abs(self.left):.1%} "
            f"{'less' if self.left >= 0.0 else 'more'} than the law has for now"
        )
        if self.diverging:
            return f"{text}; warning: it is diverging"
        if self.turned:
            return f"{text}; warning: it has passed its minimum and rises"
        if not self.follows_law:
            return f"{text}; warning: it bends away from the law, do not rely on the expected loss"
        return text


def forecast_loss(
    losses: Sequence[float] | ArrayLike,
    ahead: int,
    *,
    level: float = 0.9,
    residual: Literal["gru"] | Ensemble | None = None,
    rates: Sequence[float] | ArrayLike | None = None,
) -> LossForecast:
    """Continues a loss curve as a power law.

    Each loss is a step: an epoch, or a block of mini-batches of constant length with its mean
    loss. The forecast assumes that the training goes on as it did: while a learning
    rate falls, the loss falls faster than the law says, unless `residual` and `rates` are given.

    Args:
        losses: The losses so far, at least 10, positive.
        ahead: How many steps to look ahead, at least 1.
        level: The probability with which a loss is to lie within the interval, above 0 and below 1.
        residual: None, "gru" for the ensemble of the package, or another one
            (scripts/train_loss_forecaster.py). It predicts the residual of the law up to four times
            the length of the curve; from there on its last value stays.
        rates: For the ensemble, the learning rates of all steps, also those ahead: above 0 so far,
            and not negative ahead. Later steps take the last rate.

    Raises:
        ValueError: for fewer losses than 10 or than the level needs, for losses that are not finite
            (after a training that diverged) or not positive, for learning rates without an
            ensemble, and for other values out of range.
    """
    curve = _curve(losses)
    require_at_least("ahead", ahead, 1)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be above 0 and below 1 (got {level})")
    count = len(curve)
    if isinstance(residual, str) and residual != "gru":
        raise ValueError(f"residual must be None, 'gru' or an Ensemble (got {residual!r})")
    known = _rates(rates, count + ahead, ahead, residual)
    ensemble = trained() if residual == "gru" else residual
    logs = np.log(curve)
    bend = Bend.found(logs) if ensemble is None else None
    outlook = replace(_looked(logs, ahead, level, ensemble, known), bend=bend)
    steps = np.arange(count + 1, count + 1 + ahead)
    lower, expected, upper = outlook.at(steps.astype(np.float64))
    return LossForecast(
        observed=curve,
        steps=steps,
        expected=expected,
        lower=lower,
        upper=upper,
        level=level,
        exponent=-outlook.law.slope,
        diverging=_is_diverging(curve, level),
        follows_law=bend is None,
        turned=bend is not None and bend.has_turned,
        _outlook=outlook,
    )


def _looked(
    logs: Values, ahead: int, level: float, ensemble: Ensemble | None, rates: Values | None
) -> _Outlook:
    """The outlook; its width is a quantile of the errors of outlooks from parts of the curve.

    Parts begin with the curve; each looks ahead by the same share of its own length.
    """
    count = len(logs)
    stride = -(-(count - _SHORTEST) // _MOST_PARTS)
    parts = [*range(_SHORTEST, count, stride), count]
    laws = [PowerLaw.fitted(logs[:part]) for part in parts]
    added: Sequence[Residual | None] = [None] * len(laws)
    if ensemble is not None:
        added = continued(ensemble, [logs[:part] for part in parts], laws, rates)
    scores = []
    for part, law, residual in zip(parts[:-1], laws, added, strict=False):
        end = min(part + max(1, round(ahead * part / count)), count)
        steps = np.arange(part + 1.0, end + 1.0)
        scores.append(np.abs(logs[part:end] - _continued(law, residual, steps)) / law.error(steps))
    sorted_scores = np.sort(np.concatenate(scores))
    place = math.ceil((len(sorted_scores) + 1) * level)
    if place > len(sorted_scores):
        most = len(sorted_scores) / (len(sorted_scores) + 1)
        raise ValueError(
            f"level = {level}: these {count} losses allow for intervals up to level {most:.3f}; "
            "give more losses, or a lower level"
        )
    width = float(sorted_scores[place - 1])
    if ensemble is None and count < _FEW:  # right for independent normal errors around the law
        width = max(width, student_quantile((1.0 + level) / 2.0, laws[-1].count - 2))
    return _Outlook(laws[-1], added[-1], width)


def _continued(law: PowerLaw, residual: Residual | None, steps: Values) -> Values:
    return law.at(steps) if residual is None else law.at(steps) + residual.at(steps)


def _is_diverging(curve: Values, level: float) -> bool:
    """Whether the last tenth (three losses at least) rose above the interval of earlier losses."""
    tail = max(3, len(curve) // 10)
    before = curve[:-tail]
    if len(before) < LEAST:
        return False
    try:
        earlier = _looked(np.log(before), tail, level, None, None)
    except ValueError:  # too few losses for the level
        return False
    upper = earlier.at(np.arange(len(before) + 1.0, len(curve) + 1.0))[2]
    above = bool((curve[-tail:] > upper).all())
    return above and float(curve[-tail:].mean()) > float(before[-tail:].mean())


def _curve(losses: Sequence[float] | ArrayLike) -> Values:
    try:
        curve: Any = np.array(losses, np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"losses must be a list of numbers ({error})") from None
    if curve.ndim != 1 or len(curve) < LEAST:
        raise ValueError(
            f"losses must be a list of at least {LEAST} numbers (got shape {list(curve.shape)}); "
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


def _rates(
    rates: Sequence[float] | ArrayLike | None, count: int, ahead: int, residual: object
) -> Values | None:
    """The learning rates of `count` steps, the last ones ahead; or None."""
    if rates is None:
        return None
    if residual is None:
        raise ValueError(
            'rates say nothing to the law alone; add residual="gru", or leave them out'
        )
    found: Any = np.array(rates, np.float64)
    if found.shape != (count,):
        raise ValueError(
            f"rates must be a list of {count} learning rates, of the losses so far and of "
            f"the steps ahead (got shape {list(found.shape)})"
        )
    for place, rate in enumerate(found.tolist()):
        if not 0.0 <= rate < math.inf or (rate == 0.0 and place < count - ahead):
            raise ValueError(
                f"rates[{place}] is {rate}; learning rates must be finite, above 0 so far and not "
                "negative ahead"
            )
    result: Values = found
    return result


def leaves_less(losses: Sequence[float], ahead: int, least: float) -> bool:
    """Whether a forecast of so many losses leaves a smaller share of the loss to be gained.

    False if there are too few losses, or none ahead.
    """
    try:
        return ahead > 0 and forecast_loss(losses, ahead).left < least
    except ValueError:
        return False
