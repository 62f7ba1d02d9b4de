"""Readings of conductances over time, from files and columns."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulsora.fit.retention_model import Cells

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    _Array = NDArray[np.float64]

__all__ = ["column_of", "grouped", "read_columns"]

_COLUMNS = ("cell", "target", "time", "conductance")
_FEWEST_CELLS = 8  # of a target


def read_columns(path: str | os.PathLike[str]) -> dict[str, list[float]]:
    """Reads the columns of a CSV file."""
    columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        names = [name.strip().lower() for name in next(rows, [])]
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            raise ValueError(
                f"{path}, line 1 has the columns {names}; there is no {missing[0]!r}: name the "
                f"columns {', '.join(_COLUMNS)}"
            )
        seen: dict[str, int] = {}
        for line, row in enumerate(rows, 2):
            if not any(entry.strip() for entry in row):
                continue
            for name in _COLUMNS:
                place = names.index(name)
                text = row[place].strip() if place < len(row) else ""
                if name == "cell":
                    columns[name].append(seen.setdefault(text, len(seen)))
                    continue
                try:
                    columns[name].append(float(text))
                except ValueError:
                    raise ValueError(
                        f"{path}, line {line}: {name} is {text!r}; write a number"
                    ) from None
    return columns


def column_of(columns: Mapping[str, ArrayLike], name: str) -> _Array:
    """Returns a column as numbers; ValueError for one that is missing or has other values."""
    if name not in columns:
        raise ValueError(f"readings have no column {name!r}; give {', '.join(_COLUMNS)}")
    values = np.asarray(columns[name], dtype=np.float64).ravel()
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite; leave these readings out")
    if name in {"target", "time"} and (values < 0.0).any():
        raise ValueError(f"{name} has the value {values.min():g}; it must be >= 0")
    return values


def grouped(columns: dict[str, _Array]) -> list[Cells]:
    """Returns the readings of each target as [cells, times], targets ascending."""
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"the columns {', '.join(columns)} have different lengths; give as many")
    if not len(columns["cell"]):
        raise ValueError("there are no readings")
    groups = []
    for target in np.unique(columns["target"]):
        of_target = columns["target"] == target
        cell, time, value = (columns[n][of_target] for n in ("cell", "time", "conductance"))
        cells, row = np.unique(cell, return_inverse=True)
        times, col = np.unique(time, return_inverse=True)
        if target == 0.0:
            raise ValueError(
                "there are cells of target 0 uS, whose errors and drift are no shares of a "
                "conductance; leave them out, so that the tables end at the smallest target"
            )
        if len(value) != len(cells) * len(times) or len(set(zip(row, col, strict=True))) != len(
            value
        ):
            raise ValueError(
                f"{len(cells)} cells of target {target:g} uS have {len(value)} readings at "
                f"{len(times)} times; read each cell once at each time"
            )
        if len(cells) < _FEWEST_CELLS:
            raise ValueError(
                f"target {target:g} uS has {len(cells)} cells; give {_FEWEST_CELLS} at least"
            )
        matrix = np.empty((len(cells), len(times)))
        matrix[row, col] = value
        groups.append(Cells(float(target), times, matrix))
    return groups
