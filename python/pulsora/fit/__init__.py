"""Devices from measured pulses, and noise models from readings over time.

    device, report = pulsora.fit.device("pulses.csv")
    print(report)
    report.plot().savefig("fit.png")
    config = pulsora.SingleConfig(device=device)

    memory = pulsora.fit.retention("readings.csv").noise_model
    config = pulsora.InferenceConfig(noise_model=memory)

Needs SciPy: pip install 'pulsora[fit]'.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pulsora import _core, devices
from pulsora.fit.arrays import traces_of
from pulsora.fit.choice import compare
from pulsora.fit.models import MODELS
from pulsora.fit.pulses import pulses_of
from pulsora.fit.report import Candidate, Parameter, Report
from pulsora.fit.retention import RetentionFit, retention
from pulsora.fit.table import read_traces

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from pulsora.devices import Device

__all__ = ["MODELS", "Candidate", "Parameter", "Report", "RetentionFit", "device", "retention"]


def device(
    path: str | os.PathLike[str] | None = None,
    *,
    up: ArrayLike | None = None,
    down: ArrayLike | None = None,
    unit: str = "conductance",
    span: tuple[float, float] | None = None,
    models: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> tuple[Device, Report]:
    """Fits device models to readings of cells between pulses, by maximum likelihood.

    Read noise, noise from cycle to cycle (`dw_min_std`), and spreads between cells (`..._dtod`,
    from 3 cells on) are told apart. Bounds are fitted where cells reach them. Every model is also
    fitted to a part of the data; the best model is the one under which the rest is most likely.
    Where that hardly differs (by less than 5 in the logarithm), models with doubtful numbers and
    models that follow the measured curves much worse come last; between the others, where it
    differs by less than 1, the lowest AIC decides.

    Args:
        path: A CSV file with the columns `pulse`, `direction` (up or down), `conductance` or
            `weight`, and `cell` and `cycle` if there are several. Or, instead:
        up: Readings of traces of up pulses, the first before any pulse: [cells, cycles, readings],
            [cells, readings] or [readings]. Traces in lists may have different lengths and
            numbers, and NaN may fill up the ends of traces in an array.
        down: Readings of traces of down pulses, likewise; each follows the up trace of its cycle.
        unit: Unit of `up` and `down`: "conductance", or "weight" for numbers that are not to be
            scaled.
        span: The lowest and the highest weight that the mean cell can have, in units of the
            readings, if they are known. Of conductances they become the weights -1 and 1. By
            default hard bounds are fitted, and the extremes of conductances become -1 and 1.
        models: Names of the models to fit, or one name; by default all of `MODELS` in this build.
        columns: Names of the columns of a file without such a line. ("up", "down") is a table of
            one trace of each direction, whose numbers have the unit of `unit`.

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
        traces, unit = read_traces(path, columns, unit)
    elif columns is not None:
        raise ValueError("columns names those of a file; leave it out with up and down")
    elif up is None or down is None:
        raise ValueError("up or down is missing; a device is trained by pulses of both directions")
    else:
        traces = traces_of(up, down)
    pulses = pulses_of(traces, unit, span)
    report = compare(pulses, _chosen([models] if isinstance(models, str) else models))
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
