"""Figures that notebooks show, and the colours of all figures."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

__all__ = ["COLORS", "ShownFigure"]

COLORS = ("#1b6ca8", "#d1495b", "#2e933c", "#7a5195", "#e08e0b")


class ShownFigure(Figure):
    """A figure without pyplot. A notebook shows it where it is the last value of a cell."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
