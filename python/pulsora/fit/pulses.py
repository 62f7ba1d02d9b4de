"""Measured data: readings of cells between pulses, as weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Pulses", "Scale", "Trace", "pulses_of"]

_SPIKE = 0.2  # of the range of weights
_UNUSUAL = 10.0  # times the median change
_MOST_SPIKES = 3  # that are named
_FEW = 0.01  # share of readings that may be outliers
_MANY = 20  # readings, one of which may be an outlier
_APART = 5.0  # times the range of the other readings
_FEWEST = 4  # fewest pulses per direction from which a step and its noise can be told


@dataclass(frozen=True)
class Trace:
    """Readings of one cell in a row.

    Attributes:
        cell: Name of the cell.
        cycle: Name of the cycle.
        values: The readings, [n]; NaN after pulses without a reading.
        up: Whether the pulse before each reading but the first went up, [n - 1].
    """

    cell: str
    cycle: str
    values: NDArray[np.float64]
    up: NDArray[np.bool_]


@dataclass(frozen=True)
class Scale:
    """weight = (reading - offset) / factor."""

    unit: str
    offset: float = 0.0
    factor: float = 1.0

    def reading(self, weight: float) -> float:
        """The reading of a weight."""
        return self.offset + self.factor * weight

    def __str__(self) -> str:
        if self.unit == "weight":
            return "readings are weights, taken as they are"
        return f"weight = (conductance - {self.offset:.6g}) / {self.factor:.6g}"


@dataclass(frozen=True)
class Pulses:
    """Readings of all cells as weights, one column per cell, with its traces one after another.

    Attributes:
        weights: [steps, cells]; NaN where nothing was read.
        direction: Direction of the pulse before each reading: 1 up, -1 down, 0 at the beginning of
            a trace, [steps, cells].
        cycle: Number of the trace within its cell, [steps, cells].
        cells: Names of the cells.
        scale: Conversion of readings to weights.
        bounds: The lowest and the highest weight of the mean cell.
        given: Whether the caller gave these bounds; otherwise they are the extremes.
    """

    weights: NDArray[np.float64]
    direction: NDArray[np.int8]
    cycle: NDArray[np.int64]
    cells: tuple[str, ...]
    scale: Scale
    bounds: tuple[float, float]
    given: bool = False

    def of_cells(self, chosen: Sequence[int]) -> Pulses:
        """The data of some of the cells."""
        at = list(chosen)
        return replace(
            self,
            weights=self.weights[:, at],
            direction=self.direction[:, at],
            cycle=self.cycle[:, at],
            cells=tuple(self.cells[i] for i in at),
        )

    def increments(self, up: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights before pulses of a direction, and the change per pulse until the next reading."""
        before, change = [], []
        for weights, direction in zip(self.weights.T, self.direction.T, strict=True):
            read = np.flatnonzero(np.isfinite(weights))
            for start, end in pairwise(read):
                if (direction[start + 1 : end + 1] == (1 if up else -1)).all():
                    before.append(weights[start])
                    change.append((weights[end] - weights[start]) / (end - start))
        return np.array(before), np.array(change)

    def range(self, up: bool) -> tuple[float, float]:
        """The lowest and the highest weight between which pulses of a direction were measured."""
        before, change = self.increments(up)
        ends = np.concatenate([before, before + change])
        return float(ends.min()), float(ends.max())

    @property
    def place(self) -> NDArray[np.int64]:
        """Number of pulses since the beginning of the trace, [steps, cells]."""
        at = np.broadcast_to(np.arange(len(self.weights))[:, None], self.weights.shape)
        starts = np.maximum.accumulate(np.where(self.direction == 0, at, 0), axis=0)
        return at - starts

    def spikes(self) -> list[str]:
        """Readings that differ from both their neighbours as no others do, in words."""
        found = []
        for column, cell in enumerate(self.cells):
            at = np.flatnonzero(np.isfinite(self.weights[:, column]))
            own, turn = self.weights[at, column], self.direction[at, column]
            if len(own) < 3:
                continue
            left, right = own[1:-1] - own[:-2], own[1:-1] - own[2:]
            apart = np.where(left * right > 0.0, np.minimum(np.abs(left), np.abs(right)), 0.0)
            apart[(turn[1:-1] == 0) | (turn[2:] != turn[1:-1])] = 0.0  # at ends of traces
            usual = np.median(np.abs(np.diff(own)))
            high = (self.bounds[1] - self.bounds[0]) * _SPIKE
            for place in np.flatnonzero((apart > high) & (apart > _UNUSUAL * usual)):
                step = at[place + 1]
                found.append(
                    f"cell {cell!r}, trace {self.cycle[step, column] + 1}, pulse "
                    f"{self.place[step, column]}: the reading "
                    f"{self.scale.reading(float(own[place + 1])):.4g} lies apart from those before "
                    "and after it; leave it out if it is false"
                )
        return found[:_MOST_SPIKES]

    @property
    def readings(self) -> int:
        """Number of readings after pulses."""
        return int((np.isfinite(self.weights) & (self.direction != 0)).sum())


def pulses_of(
    traces: Sequence[Trace], unit: str, span: tuple[float, float] | None = None
) -> Pulses:
    """Converts traces to weights.

    Args:
        traces: The readings.
        unit: "conductance": readings are shifted and scaled so that `span` becomes the weights -1
            and 1; "weight": readings stay.
        span: The lowest and the highest reading of the mean cell; by default the extremes in the
            data.

    Raises:
        ValueError: if nothing can be fitted to the traces.
    """
    if unit not in {"conductance", "weight"}:
        raise ValueError(f"unit must be 'conductance' or 'weight' (got {unit!r})")
    for way, name, other in ((True, "up", "down"), (False, "down", "up")):
        count = sum(int((trace.up == way).sum()) for trace in traces)
        if count < _FEWEST:
            raise ValueError(
                f"there are {count} {name} pulses; measure at least {_FEWEST} of each direction "
                f"(a device is trained by both, and {name} steps do not follow from {other} steps)"
            )
    everything = np.concatenate([trace.values for trace in traces])
    everything = everything[np.isfinite(everything)]
    low, high = float(everything.min()), float(everything.max())
    if not low < high:
        raise ValueError(f"all readings are {low:g}; measure a cell that answers to pulses")
    _require_no_outliers(traces, everything)
    if span is not None:
        low, high = _span(span, float(np.median(everything)))
    scale = Scale(unit)
    if unit == "conductance":
        scale = Scale(unit, 0.5 * (low + high), 0.5 * (high - low))
    bounds = ((low - scale.offset) / scale.factor, (high - scale.offset) / scale.factor)
    if not bounds[0] < 0.0 < bounds[1]:
        raise ValueError(
            f"weights lie between {low:g} and {high:g}, which do not enclose 0; shift them, or "
            "give them as conductances, which are scaled to -1 to 1"
        )
    return replace(_columns(traces, scale, bounds), given=span is not None)


def _require_no_outliers(traces: Sequence[Trace], readings: NDArray[np.float64]) -> None:
    """Raises a ValueError for few readings that are far from all others."""
    few = max(int(_FEW * len(readings)), int(len(readings) >= _MANY))
    order = np.sort(readings)
    for count in range(1, few + 1):
        for kept in (order[count:], order[:-count]):
            low, high = kept[0], kept[-1]
            margin = _APART * (high - low)
            if low - order[0] > margin or order[-1] - high > margin:
                for trace in traces:
                    values = np.nan_to_num(trace.values, nan=low)
                    far = np.flatnonzero((values < low - margin) | (values > high + margin))
                    if len(far):
                        raise ValueError(
                            f"cell {trace.cell!r}, cycle {trace.cycle!r}, reading {far[0]} is "
                            f"{trace.values[far[0]]:g}, and all but {count} of the {len(readings)} "
                            f"readings lie between {low:g} and {high:g}; leave it out"
                        )


def _span(span: tuple[float, float], middle: float) -> tuple[float, float]:
    """The two readings of a span, which must enclose the median of all readings."""
    try:
        low, high = (float(end) for end in span)
    except (TypeError, ValueError):
        raise ValueError(f"span must be two numbers, such as (0.0, 1.0) (got {span!r})") from None
    if not low < high or not np.isfinite(0.5 * (high - low)):
        raise ValueError(f"span = ({low:g}, {high:g}) must be a lower and a higher reading")
    if not low < middle < high:
        raise ValueError(
            f"span = ({low:g}, {high:g}) does not enclose the median of the readings, {middle:g}; "
            "give it in their unit"
        )
    return low, high


def _columns(traces: Sequence[Trace], scale: Scale, bounds: tuple[float, float]) -> Pulses:
    cells = tuple(dict.fromkeys(trace.cell for trace in traces))
    steps = max(sum(len(t.values) for t in traces if t.cell == cell) for cell in cells)
    weights = np.full((steps, len(cells)), np.nan)
    direction = np.zeros((steps, len(cells)), np.int8)
    cycle = np.zeros((steps, len(cells)), np.int64)
    for column, cell in enumerate(cells):
        at = 0
        for number, trace in enumerate(t for t in traces if t.cell == cell):
            end = at + len(trace.values)
            weights[at:end, column] = (trace.values - scale.offset) / scale.factor
            direction[at + 1 : end, column] = np.where(trace.up, 1, -1)
            cycle[at:end, column] = number
            at = end
    return Pulses(weights, direction, cycle, cells, scale, bounds)
