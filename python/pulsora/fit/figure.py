"""The figure of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsora._internal.figures import ShownFigure
from pulsora.fit.likelihood import predicted
from pulsora.fit.setting import bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pulsora.fit.estimate import Estimate
    from pulsora.fit.pulses import Pulses

__all__ = ["plot_fit"]

_UP, _DOWN, _MODEL = "#1b6ca8", "#d1495b", "0.15"
_BINS = 12
_CELLS = 5  # cells drawn one by one


def plot_fit(pulses: Pulses, name: str, fitted: Estimate, residuals: np.ndarray) -> Figure:
    """Draws readings, the mean cell of the model, mean steps over the weight, and residuals."""
    figure = ShownFigure(figsize=(10.0, 6.4), layout="constrained")
    readings, steps, over_time, histogram = figure.subplots(2, 2).ravel()
    _draw_readings(readings, pulses, name, fitted)
    _draw_steps(steps, pulses, fitted)
    _draw_residuals(over_time, pulses, residuals)
    left = residuals[np.isfinite(residuals)]
    histogram.hist(left, bins=np.linspace(-5, 5, 41), density=True, color=_UP, alpha=0.5)
    x = np.linspace(-5, 5, 201)
    histogram.plot(x, np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), color=_MODEL, label="normal")
    histogram.set(
        title=f"residuals: mean {left.mean():.2f}, deviation {left.std():.2f}",
        xlabel="standard deviations",
        ylabel="density",
    )
    histogram.legend(frameon=False)
    return figure


def _draw_readings(axes: Axes, pulses: Pulses, name: str, fitted: Estimate) -> None:
    weights = pulses.weights
    axes.plot(weights[:, :_CELLS], color="0.6", linewidth=0.6)
    axes.plot([], [], color="0.6", linewidth=0.6, label="readings of cells")
    axes.plot(np.nanmean(weights, axis=1), color=_UP, label="their mean")
    path = predicted(fitted.model, fitted.setting, fitted.named(), pulses)
    axes.plot(np.nanmean(path, axis=1), color=_MODEL, linestyle="--", label=f"{name}, mean cell")
    axes.set(title="readings", xlabel="reading", ylabel="weight")
    axes.legend(frameon=False, fontsize="small")


def _draw_steps(axes: Axes, pulses: Pulses, fitted: Estimate) -> None:
    t = {name: value[:, None] for name, value in fitted.named().items()}
    none = {name: np.zeros((1, 1)) for name in fitted.model.effects}
    low, high = (float(bound[0]) for bound in bounds(fitted.named(), {}, fitted.setting))
    w = np.linspace(low, high, 200)
    for up, color, name in ((True, _UP, "up"), (False, _DOWN, "down")):
        before, change = pulses.increments(up)
        edges = np.linspace(*pulses.bounds, _BINS + 1)
        at = np.digitize(before, edges)
        for number in range(1, _BINS + 1):
            own = change[at == number]
            if len(own) > 1:
                axes.errorbar(
                    before[at == number].mean(), own.mean(), own.std() / np.sqrt(len(own)),
                    color=color, marker="o", markersize=3,
                )  # fmt: skip
        steps = fitted.model.step(t, none, fitted.setting, w[None], up)[0]
        axes.plot(w, steps if up else -steps, color=color, label=f"{name}: model, and readings")
    axes.axhline(0.0, color="0.8", linewidth=0.8)
    axes.set(title="mean change by one pulse", xlabel="weight", ylabel="weight")
    axes.legend(frameon=False, fontsize="small")


def _draw_residuals(axes: Axes, pulses: Pulses, residuals: np.ndarray) -> None:
    for sign, color, name in ((1, _UP, "up"), (-1, _DOWN, "down")):
        seen = (pulses.direction == sign) & np.isfinite(residuals)
        axes.plot(
            *(pulses.weights[seen], residuals[seen], "."),
            color=color, markersize=2, alpha=0.4, label=name,
        )  # fmt: skip
    axes.axhline(0.0, color="0.8", linewidth=0.8)
    axes.set(title="reading minus expectation", xlabel="weight", ylabel="standard deviations")
    axes.legend(frameon=False, fontsize="small", markerscale=4)
