"""The figure of reports: a metric over the time since programming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora._internal.figures import ShownFigure

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["plot_reports"]


def plot_reports(reports: Mapping[str, Any]) -> ShownFigure:
    """Draws reports (InferenceReport) by name: mean, band of one deviation, and programmings."""
    figure = ShownFigure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, report in reports.items():
        times = np.maximum(report.times, 1.0)  # a logarithmic axis has no 0
        (line,) = axes.plot(times, report.mean, "-o", label=name)
        axes.plot(times, report.values, ".", color=line.get_color(), alpha=0.3, markersize=3)
        if len(report.programmings) > 1:
            low, high = report.mean - report.std, report.mean + report.std
            axes.fill_between(times, low, high, color=line.get_color(), alpha=0.2)
        axes.set_ylabel(report.metric)
    axes.set(xscale="log", xlabel="time after programming in s")
    axes.legend()
    return figure
