"""Measurements in arrays and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pulsora.fit.pulses import Trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    _Rows: TypeAlias = list[list[NDArray[np.float64]]]

__all__ = ["traces_of"]

_SHAPES = "[cells, cycles, readings], [cells, readings] or [readings]"


def traces_of(up: ArrayLike, down: ArrayLike) -> list[Trace]:
    """Traces from readings: [cells, cycles, readings], [cells, readings] or [readings].

    Lists may hold traces of different lengths, and NaN may fill up the end of a trace. Numbers of
    cycles may differ, and so may the numbers of cells.

    Raises:
        ValueError: if they are no such arrays.
    """
    ways = {"up": _rows("up", up), "down": _rows("down", down)}
    traces = []
    for cell in range(max(map(len, ways.values()))):
        cycles = {name: rows[cell] if cell < len(rows) else [] for name, rows in ways.items()}
        for cycle in range(max(map(len, cycles.values()))):
            for name, own in cycles.items():
                if cycle < len(own):
                    going = np.full(len(own[cycle]) - 1, name == "up")
                    traces.append(Trace(str(cell), f"{cycle} {name}", own[cycle], going))
    return traces


def _rows(name: str, values: ArrayLike) -> _Rows:
    """The traces of each cell and cycle."""
    depth = _depth(values)
    if not 1 <= depth <= 3:
        raise ValueError(f"{name} has {depth} dimensions; give {_SHAPES}")
    cells: Any = [values] if depth == 1 else values
    rows = [
        [_trace(f"{name}[{cell}]", own)] if depth < 3 else
        [_trace(f"{name}[{cell}, {cycle}]", one) for cycle, one in enumerate(own)]
        for cell, own in enumerate(cells)
    ]  # fmt: skip
    if not any(map(len, rows)):
        raise ValueError(f"{name} is empty; give {_SHAPES}")
    return rows


def _depth(values: Any, most: int = 4) -> int:  # noqa: ANN401
    """The number of dimensions, of a list by its first element; of a list no more than `most`."""
    if isinstance(values, (list, tuple)):
        return 1 + (_depth(values[0], most - 1) if values and most > 1 else 0)
    return int(np.ndim(values))


def _trace(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        row = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no trace of numbers; give {_SHAPES}") from error
    if row.ndim != 1:
        raise ValueError(f"{name} has {row.ndim} dimensions, and others fewer; give {_SHAPES}")
    filled = np.flatnonzero(~np.isnan(row))
    row = row[: filled[-1] + 1] if len(filled) else row[:0]
    if len(row) == 0:
        raise ValueError(f"{name} has no readings; leave the trace out")
    if not np.isfinite(row).all():
        at = int(np.flatnonzero(~np.isfinite(row))[0])
        raise ValueError(
            f"{name} has {row[at]} at reading {at}; NaN may only fill up the end of a trace. Leave "
            "out such traces, or use a CSV file, which may skip pulses"
        )
    return row
