"""The figure of compounds_study.py."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path


def draw(scores: dict[tuple[str, str], list[float]], path: Path) -> None:
    """Test accuracies of algorithms: a panel for each cell, and floating point as a line.

    A point is the mean of its seeds, with a bar from the least to the most; one seed is hollow.
    """
    cells = list(dict.fromkeys(cell for _, cell in scores if cell))
    names = list(dict.fromkeys(name for name, cell in scores if cell))
    figure = Figure(figsize=(2.4 + 2.2 * len(cells), 1.0 + 0.3 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(cells), sharex=True, sharey=True, squeeze=False)[0]
    for axis, cell in zip(panels, cells, strict=True):
        for place, name in enumerate(names):
            found = scores.get((name, cell), [])
            if not found:
                continue
            axis.plot([min(found), max(found)], [place, place], color="tab:blue", linewidth=2)
            face = "tab:blue" if len(found) > 1 else "white"
            axis.plot(fmean(found), place, "o", color="tab:blue", markerfacecolor=face)
        for (_, of), found in scores.items():
            if not of:
                axis.axvline(fmean(found), color="tab:gray", linestyle=":")
        axis.set(title=cell, xlabel="test accuracy (%)")
        axis.grid(alpha=0.3)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.savefig(path)
