"""Devices from measured pulses.

    device, report = pulsora.fit.device("pulses.csv")
    print(report)
    report.plot().savefig("fit.png")
    config = pulsora.SingleConfig(device=device)

Needs SciPy: pip install 'pulsora[fit]'.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from pulsora import _core, devices
from pulsora.fit.estimate import beginning, estimate
from pulsora.fit.likelihood import filtered
from pulsora.fit.models import MODELS
from pulsora.fit.pulses import Pulses, pulses_of, traces_of
from pulsora.fit.report import Candidate, Parameter, Report, device_of
from pulsora.fit.table import read_traces

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from pulsora.devices import Device
    from pulsora.fit.estimate import Estimate

__all__ = ["MODELS", "Candidate", "Parameter", "Report", "device"]

_TIE = 1.0  # a smaller difference in log-likelihood says nothing


def device(
    path: str | os.PathLike[str] | None = None,
    *,
    up: ArrayLike | None = None,
    down: ArrayLike | None = None,
    unit: str = "conductance",
    span: tuple[float, float] | None = None,
    models: str | Sequence[str] | None = None,
) -> tuple[Device, Report]:
    """Fits device models to readings of cells between pulses, by maximum likelihood.

    Read noise, noise from cycle to cycle (`dw_min_std`), and spreads between cells (`..._dtod`,
    from 3 cells on) are told apart. Every model is also fitted to a part of the data; the best
    model is the one under which the rest is most likely. Where that hardly differs (by less than 1
    in the logarithm), the lowest AIC decides.

    Args:
        path: A CSV file with the columns `pulse`, `direction` (up or down), `conductance` or
            `weight`, and `cell` and `cycle` if there are several. Or, instead:
        up: Readings of traces of up pulses, the first before any pulse: [cells, cycles, readings],
            [cells, readings] or [readings].
        down: Readings of traces of down pulses, likewise; each follows the up trace of its cycle.
        unit: Unit of `up` and `down`: "conductance", or "weight" for numbers that are not to be
            scaled.
        span: The lowest and the highest reading of the mean cell, in units of the readings. Of
            conductances they become the weights -1 and 1. By default the extremes in the data.
        models: Names of the models to fit, or one name; by default all of `MODELS` in this build.

    Returns:
        The device of the best model, for `SingleConfig(device=...)`, and a `Report`.

    Raises:
        ValueError: for data to which nothing can be fitted, with advice; for a file by line and
            column.
        OSError: if the file cannot be read.
        ImportError: without SciPy.
    """
    if importlib.util.find_spec("scipy") is None:
        raise ImportError("pulsora.fit needs SciPy; install it with pip install 'pulsora[fit]'")
    if (path is None) == (up is None and down is None):
        raise ValueError("give either path, or up and down")
    if path is not None:
        traces, unit = read_traces(path)
    elif up is None or down is None:
        raise ValueError("up or down is missing; a device is trained by pulses of both directions")
    else:
        traces = traces_of(up, down)
    pulses = pulses_of(traces, unit, span)
    report = _compare(pulses, _chosen([models] if isinstance(models, str) else models))
    if report.best.device is None:
        raise ValueError(f"no model fits: {report.best.model}: {report.best.problem}")
    return report.best.device, report


def _chosen(models: Sequence[str] | None) -> list[str]:
    built = [name for name in MODELS if name in devices.MODELS]
    for name in models or ():
        if name not in built:
            raise ValueError(
                f"models has {name!r}, which is none that can be "
                f"fitted{_core.suggest(str(name), built)}"
            )
    if models is not None and not models:
        raise ValueError("models is empty; name at least one")
    return built if models is None else list(dict.fromkeys(models))


def _compare(pulses: Pulses, names: Sequence[str]) -> Report:
    begin = beginning(pulses)
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
        found.append(_candidate(one, held))
    key = _by_aic if split is None else _by_held_out
    found.sort(key=key)
    if split is not None:
        equal = [one for one in found if one.device and one.held_out > found[0].held_out - _TIE]
        chosen = min(equal or found, key=_by_aic)
        found.sort(key=lambda one: one is not chosen)
    best = found[0]
    return Report(
        best=best,
        candidates=tuple(found),
        pulses=pulses,
        chosen_by="AIC" if split is None else "held-out likelihood",
        held_out=0 if split is None else int(split[2].sum()),
        notes=tuple(_notes(best, pulses, split is None)),
    )


def _by_aic(one: Candidate) -> tuple[bool, float]:
    return one.device is None, one.aic


def _by_held_out(one: Candidate) -> tuple[bool, float]:
    return one.device is None, -one.held_out if np.isfinite(one.held_out) else np.inf


def _candidate(one: Estimate, held_out: float) -> Candidate:
    values = {}
    for name, (value, error) in one.natural().items():
        if value.ndim:
            values[name] = Parameter(tuple(value.tolist()), tuple(error.tolist()))
        else:
            values[name] = Parameter(float(value), float(error))
    made, problem = None, "" if one.converged else "search ended early"
    try:
        made = device_of(one, values)
    except _core.ConfigError as error:
        problem = str(error)
    aic = 2.0 * len(one.names) - 2.0 * one.log_likelihood
    return Candidate(one.model.name, made, values, one.log_likelihood, aic, held_out, one, problem)


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
    train = Pulses(weights, direction, pulses.cycle, pulses.cells, pulses.scale, pulses.bounds)
    if not ((direction == 1).any() and (direction == -1).any()):
        return None
    return train, pulses, last & (pulses.direction != 0) & np.isfinite(pulses.weights)


def _notes(best: Candidate, pulses: Pulses, by_aic: bool) -> list[str]:
    notes = []
    if best.problem:
        notes.append(
            f"{best.problem}: its numbers are not those of the largest likelihood, and may be off "
            "by far more than their errors"
        )
    unsure = [name for name, one in best.parameters.items() if not one.determined]
    if unsure:
        notes.append(f"the data do not determine {', '.join(unsure)}")
    if len(pulses.cells) < 3:
        notes.append("spreads between cells are 0: measure at least 3 cells to know them")
    else:
        fitted = set(best.parameters)
        other = [name for name in ("w_max_dtod", "w_min_dtod") if name not in fitted]
        if other:
            notes.append(
                f"{' and '.join(other)} are 0: {best.model} has hard bounds, taken from the "
                "readings"
            )
    if by_aic:
        notes.append(
            "nothing was held out; measure more cells or more cycles to compare models by it"
        )
    notes.append("read noise is that of the measurement, and not part of the device")
    return notes
