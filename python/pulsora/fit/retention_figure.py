"""The figure of a fit of readings over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora._internal.figures import ShownFigure
from pulsora.config import InferenceConfig
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from pulsora.fit.retention_model import Cells
    from pulsora.noise_models import NoiseModel

__all__ = ["plot_retention"]

_DEVICES = 2000  # drawn from the model for a target


def plot_retention(cells: Sequence[Cells], noise_model: NoiseModel) -> Figure:
    """Draws mean and deviation of the readings of each target, and those of the model."""
    figure = ShownFigure(figsize=(9.0, 3.6), layout="constrained")
    means, deviations = figure.subplots(1, 2)
    g_max = float(noise_model.g_max)  # type: ignore[attr-defined]
    for each in cells:
        times = np.maximum(each.times, 0.1)  # a logarithmic axis has no 0
        drawn = _drawn(noise_model, each.target / g_max, each.times)
        for axes, found, model in (
            (means, each.readings.mean(axis=0), drawn.mean(axis=1)),
            (deviations, each.readings.std(axis=0), drawn.std(axis=1)),
        ):
            (line,) = axes.plot(times, found, "o", label=f"{each.target:g} uS")
            axes.plot(times, model, color=line.get_color())
    means.set(title="mean in uS", xscale="log", xlabel="time after programming in s")
    deviations.set(title="deviation in uS", xscale="log", xlabel="time after programming in s")
    means.legend(frameon=False, fontsize=7)
    return figure


def _drawn(model: Any, share: float, times: np.ndarray) -> np.ndarray:  # noqa: ANN401
    """Returns conductances [times, devices] of a target that is this share of g_max."""
    tile = Tile(1, _DEVICES, InferenceConfig(noise_model=model, compensation="none"), seed=1)
    span = model.g_max - model.g_min
    weight = (share * model.g_max - model.g_min) / span
    weights = np.full((1, _DEVICES), weight, dtype=np.float32)
    weights[0, -1] = 1.0  # the scale
    tile.weights = weights
    array: Any = tile.programming
    array.program()
    found = []
    for time in times:
        array.drift(float(time))
        found.append(array.conductances()[0, :-1, 0])
    return np.array(found)
