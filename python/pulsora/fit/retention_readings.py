"""Readings of conductances over time, from files and columns."""

from __future__ import annotations

import os
import reprlib
from typing import TYPE_CHECKING

import numpy as np

from pulsora.fit.retention_model import Cells
from pulsora.fit.table import read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    _Array = NDArray[np.float64]

__all__ = ["FEWEST_CELLS", "cells_of"]

_COLUMNS = ("cell", "time", "conductance")
_TARGET = "target"
FEWEST_CELLS = 8
"""The fewest cells of a target."""
_MOST_LEVELS = 8  # into which cells without targets are sorted
_CELLS_OF_LEVEL = 20


def cells_of(
    readings: str | os.PathLike[str] | Mapping[str, ArrayLike],
) -> tuple[list[Cells], bool]:
    """Returns the cells of each target, targets ascending, and whether targets were given.

    Without targets, cells are sorted by their first reading into levels of equal numbers of cells,
    whose target is the mean of these readings.
    """
    if isinstance(readings, str | os.PathLike):
        readings = read_columns(readings, _COLUMNS, ["cell"], [_TARGET])
    given: object = readings
    if not (hasattr(given, "keys") or hasattr(given, "columns")):  # a frame of pandas or Polars
        raise TypeError(
            f"readings = {reprlib.repr(given)}: give the path of a CSV file, or a dict of the "
            f"columns {', '.join(_COLUMNS)}, and {_TARGET} if known"
        )
    columns = {name: _column(readings, name) for name in _COLUMNS}
    known = _TARGET in readings
    if known:
        columns[_TARGET] = _column(readings, _TARGET)
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"the columns {', '.join(columns)} have different lengths; give as many")
    if not len(columns["cell"]):
        raise ValueError("there are no readings")
    if not known:
        columns[_TARGET] = _levels(columns)
    targets = np.unique(columns[_TARGET])
    return [_cells(columns, float(target)) for target in targets], known


def _column(columns: Mapping[str, ArrayLike], name: str) -> _Array:
    """Returns a column as numbers; ValueError for one that is missing or has other values."""
    if name not in columns:
        raise ValueError(
            f"readings have no column {name!r}; give {', '.join(_COLUMNS)}, and {_TARGET} if known"
        )
    given = np.asarray(columns[name]).ravel()
    if name == "cell" and given.dtype.kind in "UO":  # names of cells, as in files
        return np.unique(given.astype(str), return_inverse=True)[1].astype(np.float64)
    try:
        values = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of numbers: {error}") from error
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite; leave these readings out")
    if name in {_TARGET, "time"} and (values < 0.0).any():
        raise ValueError(f"{name} has the value {values.min():g}; it must be >= 0")
    return values


def _levels(columns: dict[str, _Array]) -> _Array:
    """Returns a target for each reading: the mean first reading of cells of its level."""
    order = np.argsort(columns["time"], kind="stable")
    cells, first = np.unique(columns["cell"][order], return_index=True)
    starts = columns["conductance"][order][first]
    count = int(np.clip(len(cells) // _CELLS_OF_LEVEL, 1, _MOST_LEVELS))
    target = np.empty(len(cells))
    for level in np.array_split(np.argsort(starts, kind="stable"), count):
        target[level] = starts[level].mean()
    if (target < 0.0).any():
        raise ValueError(
            f"conductances of the first readings are {target.min():g} uS on average; they must be "
            ">= 0"
        )
    return target[np.searchsorted(cells, columns["cell"])]


def _cells(columns: dict[str, _Array], target: float) -> Cells:
    """Returns the readings of a target as [cells, times]."""
    of_target = columns[_TARGET] == target
    cell, time, value = (columns[name][of_target] for name in _COLUMNS)
    cells, row = np.unique(cell, return_inverse=True)
    times, col = np.unique(time, return_inverse=True)
    if target == 0.0:
        raise ValueError(
            "there are cells of target 0 uS, whose errors and drift are no shares of a "
            "conductance; leave them out, so that the tables end at the smallest target"
        )
    if len(value) != len(cells) * len(times) or len(set(zip(row, col, strict=True))) != len(value):
        raise ValueError(
            f"{len(cells)} cells of target {target:g} uS have {len(value)} readings at "
            f"{len(times)} times; read each cell once at each time"
        )
    if len(cells) < FEWEST_CELLS:
        raise ValueError(
            f"target {target:g} uS has {len(cells)} cells; give {FEWEST_CELLS} at least"
        )
    matrix = np.empty((len(cells), len(times)))
    matrix[row, col] = value
    return Cells(target, times, matrix)
