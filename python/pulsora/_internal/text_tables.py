"""Plain tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns the rows as lines with aligned columns; the last column is not padded."""
    count = len(rows[0]) - 1
    widths = [max(len(row[column]) for row in rows) for column in range(count)]
    return "\n".join(
        "  ".join([*(row[i].ljust(width) for i, width in enumerate(widths)), row[count]])
        for row in rows
    )
