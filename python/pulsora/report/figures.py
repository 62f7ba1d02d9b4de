"""Figures of a report, as SVG that stands in a page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pulsora._internal.figures import COLORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from pulsora.records.files import Record
    from pulsora.report.series import Values

__all__ = ["curves", "histograms", "style"]

_MORE_COLORS = ("#00798c", "#8d6a4f", "#5c5c5c", "#c05299", "#8a9a0b")
_DASHES = ("", "6 3", "2 2", "8 3 2 3")


def style(number: int) -> tuple[str, str]:
    """Colour and dashes (as in SVG's stroke-dasharray) of the run with a number, from 0."""
    palette = (*COLORS, *_MORE_COLORS)
    return palette[number % len(palette)], _DASHES[number % len(_DASHES)]


def _settings(size: float) -> Any:  # noqa: ANN401 - matplotlib's type is a list of all names
    """Settings of matplotlib: text stays text, names are no formulas, ids follow from content."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "pulsora",
        "text.parse_math": False,
        "font.size": size,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def curves(title: str, unit: str, values: Mapping[int, Values], name: str) -> str:
    """A figure of values by epoch.

    Args:
        title: Title of the figure.
        unit: Label of the vertical axis.
        values: One value per epoch, from epoch 1, by the number of the run.
        name: Name of the figure, unlike those of all other figures of the page.
    """
    with mpl.rc_context(_settings(9.0)):
        figure = Figure(figsize=(4.4, 2.9), layout="constrained")
        axes = figure.subplots()
        for number, series in values.items():
            points = np.array([np.nan if one is None else one for one in series], np.float64)
            epochs = np.arange(1, len(points) + 1)
            axes.plot(epochs, points, **_line(number), marker="." if len(points) < 30 else "")
        axes.set(title=title, xlabel="epoch", ylabel=unit)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        last = max(len(series) for series in values.values())
        axes.set_xlim(1.0 - 0.03 * last, last + 0.03 * last)
        _include_zero(axes)
        return _svg(figure, f"{title} by epoch", name)


def histograms(
    title: str, distributions: Mapping[int, Record], before: Record | None, name: str
) -> str:
    """A figure of distributions.

    Args:
        title: Title of the figure.
        distributions: A distribution (`records.collect.distribution`) by the number of the run.
        before: A distribution that is drawn in grey behind, if given.
        name: Name of the figure, unlike those of all other figures of the page.
    """
    with mpl.rc_context(_settings(8.0)):
        figure = Figure(figsize=(3.0, 2.0), layout="constrained")
        axes = figure.subplots()
        if before is not None:
            _draw_distribution(axes, before, {"color": "0.75"}, filled=True)
        for number, one in distributions.items():
            _draw_distribution(axes, one, _line(number), filled=False)
        axes.set(xlabel="weight", title=title)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(bottom=0.0)
        return _svg(figure, f"distribution of weights, {title}", name)


def _draw_distribution(axes: Axes, one: Record, line: Mapping[str, Any], *, filled: bool) -> None:
    """Draws the density of a distribution; equal values are one vertical line."""
    if one["low"] is None:
        return
    counts = np.array(one["counts"], np.float64)
    if one["low"] == one["high"]:
        axes.axvline(one["low"], **line)
        return
    edges = np.linspace(one["low"], one["high"], len(counts) + 1)
    density = counts / counts.sum() / (edges[1] - edges[0])
    if filled:
        axes.stairs(density, edges, fill=True, **line)
    else:
        axes.stairs(density, edges, linewidth=1.2, **line)


def _line(number: int) -> dict[str, Any]:
    color, dashes = style(number)
    lengths = tuple(float(length) / 1.5 for length in dashes.split())
    return {"color": color, "linestyle": (0, lengths) if lengths else "-"}


def _include_zero(axes: Axes) -> None:
    """Begins the vertical axis at 0 where that does not hide what the curves do."""
    low, high = axes.dataLim.intervaly
    if 0.0 <= low <= 0.5 * high:
        axes.set_ylim(bottom=0.0, top=None if high > 0.0 else 1.0)


def _svg(figure: Figure, described: str, name: str) -> str:
    """The figure as an element of a page, with identifiers that no other figure has."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", svg)
    label = described.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
