"""Numbers over epochs, and the arrays of the last epoch, of the runs of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.records.files import Record
    from pulsora.report.runs import ShownRun

__all__ = [
    "ArrayRow",
    "Values",
    "array_names",
    "array_rows",
    "last_transfers",
    "per_epoch",
    "saturated",
]

Values = list[float | None]

_LONG = {"visible": "W (visible)", "fast_a": "A (fast_a)", "fast_b": "B (fast_b)"}


def shown_name(array: str) -> str:
    """The name of an array in a report, with its letter in formulas."""
    return _LONG.get(array, array)


def array_names(runs: Sequence[ShownRun]) -> list[str]:
    """Names of all arrays with cells that can be at a bound."""
    return list(
        dict.fromkeys(
            name
            for run in runs
            for tile in run.epochs[-1]["tiles"]
            for name, array in tile["arrays"].items()
            if array.get("saturated") is not None
        )
    )


def saturated(run: ShownRun, name: str) -> Values:
    """Share of cells at a bound in all arrays of a name, in per cent, by epoch."""
    shares: Values = []
    for epoch in run.epochs:
        arrays = [tile["arrays"][name] for tile in epoch["tiles"] if name in tile["arrays"]]
        cells = sum(array["cells"] for array in arrays)
        count = sum(array.get("saturated") or 0 for array in arrays)
        shares.append(100.0 * count / cells if cells else None)
    return shares


def per_epoch(run: ShownRun, metric: str) -> Values:
    """Growth of a metric that counts, in each epoch."""
    values = run.values(metric)
    return [
        None if now is None else now - (before or 0.0)
        for before, now in zip([0.0, *values[:-1]], values, strict=True)
    ]


def last_transfers(run: ShownRun, name: str) -> Values:
    """A number of the last transfer before the end of each epoch, the mean over tiles."""
    means: Values = []
    for epoch in run.epochs:
        values = [
            tile["statistics"]["last_transfer"][name]
            for tile in epoch["tiles"]
            if tile["statistics"].get("transfers") and name in _last_transfer(tile)
        ]
        known = [value for value in values if isinstance(value, int | float)]
        means.append(sum(known) / len(known) if known else None)
    return means


def _last_transfer(tile: Record) -> dict[str, Any]:
    return tile["statistics"].get("last_transfer") or {}


class ArrayRow(NamedTuple):
    """An array, or a digital parameter, at the end of a run.

    Attributes:
        place: Layer and tile, or the name of the parameter.
        array: Name of the array; "digital" for a parameter.
        cells: Number of cells; None for a parameter.
        saturated: Share of cells at a bound, if there are bounds.
        pulses: Pulses per cell, if they are counted for the array by itself.
        first: Distribution after the first epoch.
        last: Distribution after the last epoch.
    """

    place: str
    array: str
    cells: int | None
    saturated: float | None
    pulses: float | None
    first: Record | None
    last: Record


def array_rows(run: ShownRun) -> list[ArrayRow]:
    """All arrays and digital parameters of the last epoch of a run."""
    first = _distributions(run.epochs[0])
    rows = []
    for tile in run.epochs[-1]["tiles"]:
        for name, array in tile["arrays"].items():
            cells, count = array["cells"], array.get("saturated")
            key = (_place(tile), shown_name(name))
            rows.append(
                ArrayRow(
                    *key,
                    cells,
                    None if count is None or not cells else count / cells,
                    _pulses_per_cell(tile, name),
                    first.get(key),
                    array["distribution"],
                )
            )
    for parameter in run.epochs[-1]["parameters"]:
        key = (parameter["name"], "digital")
        rows.append(ArrayRow(*key, None, None, None, first.get(key), parameter["distribution"]))
    return rows


def _distributions(epoch: Record) -> dict[tuple[str, str], Record]:
    found = {
        (_place(tile), shown_name(name)): array["distribution"]
        for tile in epoch["tiles"]
        for name, array in tile["arrays"].items()
    }
    return found | {(one["name"], "digital"): one["distribution"] for one in epoch["parameters"]}


def _place(tile: Record) -> str:
    return f"{tile['layer']}, tile {tile['tile']}" if tile["tile"] else str(tile["layer"])


def _pulses_per_cell(tile: Record, array: str) -> float | None:
    names = [f"pulses_{array}", f"pulses_{array.removeprefix('fast_')}"]
    if len(tile["arrays"]) == 1:
        names.append("pulses")
    for name in names:
        if isinstance(pulses := tile["statistics"].get(name), int | float):
            return float(pulses / tile["arrays"][array]["cells"])
    return None
