"""The choice of a model: all are fitted, and compared by data that were held out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pulsora import _core
from pulsora.fit.estimate import beginning, estimate
from pulsora.fit.likelihood import filtered, predicted
from pulsora.fit.models import MODELS
from pulsora.fit.notes import notes_on
from pulsora.fit.report import Candidate, Parameter, Report, device_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pulsora.fit.estimate import Estimate
    from pulsora.fit.pulses import Pulses

__all__ = ["compare"]

_TIE = 1.0  # a smaller difference in log-likelihood says nothing
_CLOSE = 5.0  # a smaller one does not outweigh doubts
_NEAR_LIMIT = 0.01
_STUCK = 1e-3  # of a mean step
_WORSE, _SMALL = 1.5, 0.01  # a curve is much worse if it is off by that factor, and by 1 % more


def compare(pulses: Pulses, names: Sequence[str]) -> Report:
    """Fits models to the pulses, and chooses one."""
    begin = beginning(pulses, hard=any(MODELS[name].hard for name in names))
    split = _held_out(pulses)
    found = []
    for name in names:
        model = MODELS[name]
        if split is None:
            one, held = estimate(model, pulses, begin), np.nan
        else:
            train, test, counted = split
            part = estimate(model, train, begin)
            with np.errstate(all="ignore"):
                parts = filtered(model, part.setting, part.named(), test, counted)
            held = float(parts.log_likelihood.sum())
            one = estimate(model, pulses, begin, part)
        found.append(_candidate(one, held, pulses))
    best = _best(found)
    found.sort(key=lambda one: (one is not best, -_score(one)))
    return Report(
        best=best,
        candidates=tuple(found),
        pulses=pulses,
        chosen_by="AIC" if split is None else "held-out likelihood",
        held_out=0 if split is None else int(split[2].sum()),
        measured={"up": pulses.range(up=True), "down": pulses.range(up=False)},
        notes=tuple(notes_on(best, pulses)),
    )


def _score(one: Candidate) -> float:
    """The log-likelihood by which models are compared."""
    if one.device is None:
        return -np.inf
    score = -0.5 * one.aic if np.isnan(one.held_out) else one.held_out
    return score if np.isfinite(score) else -np.inf


def _best(found: Sequence[Candidate]) -> Candidate:
    """The model of the highest score, by rules for close ones.

    Within 5 of the highest score, models whose numbers can be trusted come first, and then those
    that follow the measured curves. Of models that are left, the lowest AIC decides between the
    scores within 1 of the highest.
    """
    close = [one for one in found if one.device and _score(one) > _highest(found) - _CLOSE]
    if not close:
        return max(found, key=_score)
    least = min(max(one.curve.values()) for one in close)

    def doubts(one: Candidate) -> tuple[bool, bool]:
        return one.doubtful, max(one.curve.values()) > _WORSE * least + _SMALL

    fewest = min(map(doubts, close))
    left = [one for one in close if doubts(one) == fewest]
    equal = [one for one in left if _score(one) > _highest(left) - _TIE]
    return min(equal, key=lambda one: one.aic)


def _highest(found: Sequence[Candidate]) -> float:
    return max(map(_score, found))


def _candidate(one: Estimate, held_out: float, pulses: Pulses) -> Candidate:
    values = {}
    for name, (value, error) in one.natural().items():
        ends = np.array(one.model.limits.get(name, (-np.inf, np.inf)))
        limit = np.zeros(value.shape, bool)
        for end in ends[np.isfinite(ends)]:
            limit |= np.abs(value - end) < _NEAR_LIMIT * max(abs(end), 1.0)
        if value.ndim:
            lists = (tuple(part.tolist()) for part in (value, error, limit))
            values[name] = Parameter(*lists)
        else:
            values[name] = Parameter(float(value), float(error), bool(limit))
    made, problem = None, "" if one.converged else "search ended early"
    try:
        made = device_of(one, values)
    except _core.ConfigError as error:
        problem = str(error)
    stuck = _stuck(one, pulses)
    if stuck:
        made, problem = None, f"no step {stuck}, where nothing was measured"
    aic = 2.0 * len(one.names) - 2.0 * one.log_likelihood
    curve = _curve(one, pulses)
    return Candidate(
        one.model.name, made, values, one.log_likelihood, aic, held_out, curve, one, problem
    )


def _stuck(one: Estimate, pulses: Pulses) -> str:
    """A place without measured pulses in which cells of this model are stuck, in words, or ""."""
    t = {name: value[:, None] for name, value in one.named().items()}
    none = {name: np.zeros((1, 1)) for name in one.model.effects}
    low, high = pulses.bounds
    weights = low + (high - low) * np.linspace(0.2, 0.8, 25)  # steps may end at the bounds
    for up in (True, False):
        start, end = pulses.range(up)
        beyond = (weights < start) | (weights > end)
        with np.errstate(all="ignore"):
            steps = one.model.step(t, none, one.setting, weights[None], up)[0]
        if (steps[beyond] < _STUCK * one.setting.step).any():
            at = weights[beyond][np.argmin(steps[beyond])]
            return f"{'up' if up else 'down'} at {at:.2g}"
    return ""


def _curve(one: Estimate, pulses: Pulses) -> dict[str, float]:
    """Errors of the mean cell, as `Candidate.curve` has them."""
    with np.errstate(all="ignore"):
        off = pulses.weights - predicted(one.model, one.setting, one.named(), pulses)
    low, high = pulses.bounds
    found = {}
    for name, sign in (("up", 1), ("down", -1)):
        at = (pulses.direction == sign) & np.isfinite(off)
        # Means over the cells at one place of their traces.
        places, group = np.unique(
            np.stack([pulses.cycle[at], pulses.place[at]]), axis=1, return_inverse=True
        )
        count = np.bincount(group.ravel(), minlength=places.shape[1])
        means = np.bincount(group.ravel(), off[at], minlength=places.shape[1]) / count
        found[name] = float(np.sqrt(np.mean(means**2)) / (high - low))
    return found


def _held_out(pulses: Pulses) -> tuple[Pulses, Pulses, NDArray[np.bool_]] | None:
    """Data to fit, data to judge by, and which of their readings count.

    Held out is every third cell, or the last traces of each cell.
    """
    count = len(pulses.cells)
    if count >= 4:
        test = pulses.of_cells(range(2, count, 3))
        train = pulses.of_cells([i for i in range(count) if i % 3 != 2])
        counted = (test.direction != 0) & np.isfinite(test.weights)
        return train, test, counted
    # The last two traces of each cell: an up and a down trace where they alternate.
    last = pulses.cycle >= pulses.cycle.max(axis=0) - 1
    if pulses.cycle.max(axis=0).min() < 3:
        return None
    weights = np.where(last, np.nan, pulses.weights)
    direction = np.where(last, 0, pulses.direction).astype(np.int8)
    train = replace(pulses, weights=weights, direction=direction)
    if not ((direction == 1).any() and (direction == -1).any()):
        return None
    return train, pulses, last & (pulses.direction != 0) & np.isfinite(pulses.weights)
