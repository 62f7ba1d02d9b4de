"""Notes of a report: facts that the numbers of a fit do not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsora.fit.likelihood import filtered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsora.fit.pulses import Pulses
    from pulsora.fit.report import Candidate

__all__ = ["notes_on"]

_SMALL_SHARE = 0.5  # of the range of weights
_OFF_CURVE = 0.05
_OFF_RESIDUAL = 3.0  # standard errors
_PILED = 0.1  # share of readings
_BOUNDS = {"w_max": ("upper", "highest", 1), "w_min": ("lower", "lowest", 0)}


def notes_on(best: Candidate, pulses: Pulses) -> list[str]:
    """Notes on the chosen model and its data."""
    return [*_on_numbers(best), *_on_data(best, pulses), *_on_cells(best, pulses)]


def _on_numbers(best: Candidate) -> Iterator[str]:
    if best.problem:
        yield (
            f"{best.problem}: its numbers are not those of the largest likelihood, and may be off "
            "by far more than their errors"
        )
    unsure = [
        name
        for name, one in best.parameters.items()
        if not one.determined and not (name in _BOUNDS and best.estimate.model.hard)
    ]
    if unsure:
        yield f"the data do not determine {', '.join(unsure)}"
    limits = [name for name, one in best.parameters.items() if one.at_limit]
    if limits:
        yield f"{', '.join(limits)}: at the limit of the search; the data ask for more"


def _on_data(best: Candidate, pulses: Pulses) -> Iterator[str]:
    low, high = pulses.bounds
    for way, up in (("up", True), ("down", False)):
        start, end = pulses.range(up)
        share = (end - start) / (high - low)
        if share < _SMALL_SHARE:
            yield (
                f"{way} pulses were measured from {start:.3g} to {end:.3g}, {share:.0%} of the "
                "range; steps elsewhere are extrapolated: a table goes on with the step at its "
                "outermost measured node, a formula as it is"
            )
        if best.curve[way] > _OFF_CURVE:
            yield (
                f"the mean cell of {best.model} is off by {best.curve[way]:.1%} of the range along "
                f"{way} traces; see report.plot(), and compare other models"
            )
    one = best.estimate
    residuals = filtered(one.model, one.setting, one.named(), pulses).residuals
    for way, sign in (("up", 1), ("down", -1)):
        left = residuals[(pulses.direction == sign) & np.isfinite(residuals)]
        off = float(left.mean() * np.sqrt(left.size))
        if abs(off) > _OFF_RESIDUAL:
            yield (
                f"readings after {way} pulses lie {abs(off):.1f} standard errors "
                f"{'above' if off > 0 else 'below'} their expectation on average"
            )
    yield from pulses.spikes()


def _on_cells(best: Candidate, pulses: Pulses) -> Iterator[str]:
    model, found = best.estimate.model, best.parameters
    noise = float(np.max(found["read noise"].value))
    for name, (which, extreme, _) in _BOUNDS.items():
        if name not in found or not model.hard:
            continue
        if not found[name].determined:
            yield (
                f"no cell reaches its {which} bound: {name} is not determined, and about the "
                f"{extreme} reading"
            )
            continue
        seen = pulses.weights[np.isfinite(pulses.weights)]
        share = float(np.mean(np.abs(seen - float(np.max(found[name].value))) < 2.0 * noise))
        if share > _PILED:
            yield (
                f"{share:.0%} of the readings pile up at the {which} bound, where pulses tell "
                "nothing of steps; fewer pulses per trace tell more"
            )
    if len(pulses.cells) < 3:
        yield "spreads between cells are 0: measure at least 3 cells to know them"
    elif model.hard:
        yield f"w_max_dtod and w_min_dtod are 0: {best.model} is fitted with equal hard bounds"
    if np.isnan(best.held_out):
        yield "nothing was held out; measure more cells or more cycles to compare models by it"
    yield "read noise is that of the measurement, and not part of the device"
