"""Figures that notebooks show."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

__all__ = ["ShownFigure"]


class ShownFigure(Figure):
    """A figure without pyplot. A notebook shows it where it is the last value of a cell."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
