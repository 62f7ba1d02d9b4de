"""Ledgers: what hardware would do for a model, with costs also energy, time and area."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pulsora._internal.text_tables import aligned
from pulsora.accounting.costs import EVENTS, Costs
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

__all__ = ["EVENTS", "Ledger", "Row", "TileCounts", "ledger"]

DIGITAL = "digital"
"""Name of the row of digital work beside the arrays of a layer."""


@dataclass(frozen=True)
class Row:
    """An array of a layer, over all tiles of the layer; or the digital work beside its arrays.

    Attributes:
        layer: Name of the layer.
        array: Name of the array, or 'digital'.
        cells: Cells.
        pulse: Pulses at cells.
        pulses_per_cell: Their mean over the cells.
        cell_pulses_at_most: Pulses that no cell exceeds; None where lines were written by counts.
        slot: Time slots of pulse trains.
        line_write: Lines that were written one after another by counted pulses.
        array_read: Reads of a physical array, with repeats.
        cell_read: Reads of a cell.
        repeats: Reads that bound management made again.
        dac: Conversions by DACs.
        adc: Conversions by ADCs.
        digital_operation: Digital multiplications with an addition.
        digital_byte: Bytes of digital memory read or written.
        energy: In pJ; None unless the costs of all events that occurred are known.
        time: In ns, if nothing overlaps; None likewise.
        area: In square micrometres; None likewise.
    """

    layer: str
    array: str
    cells: int = 0
    pulse: int = 0
    pulses_per_cell: float = 0.0
    cell_pulses_at_most: int | None = None
    slot: int = 0
    line_write: int = 0
    array_read: int = 0
    cell_read: int = 0
    repeats: int = 0
    dac: int = 0
    adc: int = 0
    digital_operation: int = 0
    digital_byte: int = 0
    energy: float | None = None
    time: float | None = None
    area: float | None = None


_NAMES = [one.name for one in fields(Row)]
_SUMS = ("cells", *EVENTS, "repeats")  # counts that are added over tiles
_COSTS = ("energy", "time", "area")


@dataclass(frozen=True)
class TileCounts:
    """The counts of a tile.

    Attributes:
        layer: Name of its layer.
        shape: Outputs and inputs.
        counts: The table of `Tile.hardware_counts`.
    """

    layer: str
    shape: tuple[int, int]
    counts: Mapping[str, Any]


class Ledger:
    """A ledger of tiles.

    Args:
        tiles: Counts of tiles.
        costs: Costs of events; without them the ledger only counts.

    Attributes:
        rows: A row for each array of each layer, and for digital work.
        total: The sums of all rows.
        alternatives: What digital SGD and mixed precision would do for the same samples, by name.
            Pulses of mixed precision depend on the training, and are left out.
        transfers: Transfers between arrays.
        missing: Names of costs that are not known, such as 'adc.energy', of events that occurred.
    """

    def __init__(self, tiles: Iterable[TileCounts], costs: Costs | None = None) -> None:
        self._costs = costs
        self._missing: dict[str, None] = {}
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.transfers = 0
        others: dict[str, list[dict[str, Any]]] = {"digital SGD": [], "mixed precision": []}
        for tile in tiles:
            self.transfers += tile.counts["transfers"]
            for part in _parts(tile.counts, costs or Costs()):
                found.setdefault((tile.layer, part["array"]), []).append(part)
            others["digital SGD"].append(_digital_sgd(tile))
            others["mixed precision"].append(_mixed_precision(tile, costs or Costs()))
        self.rows = [self._row(*place, parts) for place, parts in found.items()]
        self.total = self._row("total", "", [part for parts in found.values() for part in parts])
        self.missing = list(self._missing)
        self.alternatives = {
            name: self._row(name, "", parts) for name, parts in others.items() if parts
        }

    def per(self, count: float) -> dict[str, float | None]:
        """The totals for one of `count` samples or epochs: events, energy and time.

        Raises:
            ValueError: unless the count is a finite number above 0.
        """
        if not 0 < count < math.inf:
            raise ValueError(f"count is {count!r}; give the number of samples or epochs, above 0")
        names = (*EVENTS, "energy", "time")
        values = {name: getattr(self.total, name) for name in names}
        return {name: None if value is None else value / count for name, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """The ledger as tables of numbers and texts."""
        return {
            "rows": [_plain(row) for row in self.rows],
            "total": _plain(self.total),
            "alternatives": {name: _plain(row) for name, row in self.alternatives.items()},
            "transfers": self.transfers,
            "missing": self.missing,
        }

    def to_json(self) -> str:
        """The ledger as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def to_csv(self) -> str:
        """The rows, then the total and the alternatives, as CSV with a line of names."""
        text = io.StringIO()
        writer = csv.DictWriter(text, _NAMES, lineterminator="\n")
        writer.writeheader()
        for row in (*self.rows, self.total, *self.alternatives.values()):
            writer.writerow({k: "" if v is None else v for k, v in _plain(row).items()})
        return text.getvalue()

    def __str__(self) -> str:
        rows = [*self.rows, self.total]
        names = [name for name in _NAMES if any(getattr(row, name) for row in rows)]
        lines = [[_shown(getattr(row, name)) for name in names] for row in rows]
        return aligned([names, *lines])

    def _row(self, layer: str, array: str, parts: Sequence[Mapping[str, Any]]) -> Row:
        values: dict[str, Any] = {name: sum(part[name] for part in parts) for name in _SUMS}
        most = [part["cell_pulses_at_most"] for part in parts if part["cells"]]
        values["cell_pulses_at_most"] = None if None in most or not most else max(most)
        values["pulses_per_cell"] = values["pulse"] / values["cells"] if values["cells"] else 0.0
        if self._costs is not None:
            values |= self._priced(values, parts)
        return Row(layer, array, **values)

    def _priced(
        self, values: Mapping[str, int], parts: Sequence[Mapping[str, Any]]
    ) -> dict[str, float | None]:
        """Energy, time and area of parts; None where a cost of an event is not known."""
        steps: dict[str, float] = {}  # events one after another
        for part in parts:
            for name, count in part["serial"].items():
                steps[name] = steps.get(name, 0.0) + count
        sizes: dict[str, float] = {"cell": values["cells"]}
        for part in parts:
            for name in ("dac", "adc"):
                sizes[name] = sizes.get(name, 0.0) + part["converters"][name]
        return {
            "energy": self._sum("energy", {name: values[name] for name in EVENTS}),
            "time": self._sum("time", steps),
            "area": self._sum("area", sizes),
        }

    def _sum(self, what: str, counts: Mapping[str, float]) -> float | None:
        assert self._costs is not None  # noqa: S101 - the caller has costs
        total, known = 0.0, True
        for name, count in counts.items():
            if not count:
                continue
            if what == "area":
                cost = self._costs.area.get(name)
            else:
                cost = getattr(self._costs.events.get(name), what, None)
            if cost is None:
                self._missing[f"area.{name}" if what == "area" else f"{name}.{what}"] = None
                known = False
            else:
                total += count * cost
        return total if known else None


def ledger(
    model: nn.Module | Tile | Mapping[str, Tile], costs: Costs | Mapping[str, Any] | None = None
) -> Ledger:
    """The ledger of what hardware would have done for a model so far.

    Counts are exact. Evaluations (`model.eval()`, `torch.no_grad()`), reads that are made again in
    the simulation alone, and writes of weights by the caller cost nothing.

    Args:
        model: A model with analog layers, a tile, or tiles by name.
        costs: Costs of events, or a table of them; without them the ledger only counts.

    Raises:
        TypeError: if the model is none of these.
        ValueError: for a table of costs with unknown names, or numbers out of range.
    """
    if costs is not None and not isinstance(costs, Costs):
        costs = Costs.from_dict(costs)
    if isinstance(model, Tile):
        model = {"tile": model}
    named = model.items() if isinstance(model, Mapping) else _tiles_of(model)
    return Ledger(
        [TileCounts(name, (t.d_size, t.x_size), t.hardware_counts()) for name, t in named], costs
    )


def _tiles_of(model: nn.Module) -> list[tuple[str, Tile]]:
    if not hasattr(model, "named_modules"):
        raise TypeError(f"model is {model!r}; give a model with analog layers, a tile, or tiles")
    found, seen = [], set()
    for name, module in model.named_modules():
        tiles = getattr(module, "tiles", None)
        if tiles is None or id(tiles) in seen or not hasattr(module, "statistics"):
            continue
        seen.add(id(tiles))
        found += [(name or "model", tile) for tile in tiles]
    return found


def _empty(array: str) -> dict[str, Any]:
    none = {"cell_pulses_at_most": 0, "serial": {}, "converters": {"dac": 0, "adc": 0}}
    return {"array": array, **dict.fromkeys(_SUMS, 0), **none}


def _parts(counts: Mapping[str, Any], costs: Costs) -> list[dict[str, Any]]:
    """The parts of a tile: its arrays, then its digital work if there is some."""
    parts = {one["name"]: _of_array(one, costs) for one in counts["arrays"]}
    for read in counts["reads"]:
        _add_read(parts[read["array"]], read, costs)
    found = list(parts.values())
    if counts["digital_operations"] or counts["digital_bytes"]:
        found.append(_digital(counts["digital_operations"], counts["digital_bytes"]))
    return found


def _of_array(one: Mapping[str, Any], costs: Costs) -> dict[str, Any]:
    lines = (one["rows"], one["columns"])
    shared = {"dac": costs.lines_per_dac, "adc": costs.lines_per_adc}
    return {
        **_empty(one["name"]),
        "cells": one["rows"] * one["columns"],
        "pulse": one["pulses"],
        "slot": one["slots"],
        "line_write": one["lines"],
        # A slot is one pulse of a cell at most; the pulses of counted lines have no slots.
        "cell_pulses_at_most": None if one["lines"] else min(one["slots"], one["pulses"]),
        "serial": {"slot": one["slots"], "line_write": one["lines"]},
        "converters": {
            name: sum(math.ceil(count / by) for count in lines) for name, by in shared.items()
        },
    }


def _add_read(part: dict[str, Any], read: Mapping[str, Any], costs: Costs) -> None:
    """Adds reads to an array. Its blocks are read at the same time, and converters share lines."""
    for name, key in (("array_read", "array_reads"), ("cell_read", "cell_reads")):
        part[name] += read[key]
    for name in ("repeats", "dac", "adc"):
        part[name] += read[name]
    steps = part["serial"]
    if not read["array_reads"]:  # cells that are read one by one
        steps["adc"] = steps.get("adc", 0) + read["adc"]
        return
    together = read["array_reads"] / read["blocks"]
    for name, by in (("array_read", 1), ("dac", costs.lines_per_dac), ("adc", costs.lines_per_adc)):
        if name == "array_read" or read[name]:
            steps[name] = steps.get(name, 0) + together * by


def _digital(operations: int, moved: int) -> dict[str, Any]:
    work = {"digital_operation": operations, "digital_byte": moved}
    return {**_empty(DIGITAL), **work, "serial": work}


def _digital_sgd(tile: TileCounts) -> dict[str, Any]:
    """SGD with 4-byte weights, read forward and backward, read and written by the update."""
    counts, cells = tile.counts, math.prod(tile.shape)
    samples = sum(counts[f"{pass_}_samples"] for pass_ in ("forward", "backward", "update"))
    return _digital(samples * cells, 16 * cells * counts["mini_batches"])


def _mixed_precision(tile: TileCounts, costs: Costs) -> dict[str, Any]:
    """Reads by one array; a digital sum of the updates; every row is written in a mini-batch."""
    counts, (outputs, inputs) = tile.counts, tile.shape
    cells = outputs * inputs
    lines = outputs * counts["mini_batches"]
    part = _of_array(
        {"name": "cells", "rows": outputs, "columns": inputs, "pulses": 0, "slots": 0,
         "lines": lines}, costs,
    )  # fmt: skip
    for pass_, sizes in (("forward", (inputs, outputs)), ("backward", (outputs, inputs))):
        samples = counts[f"{pass_}_samples"]
        read = {"array_reads": samples, "cell_reads": samples * cells, "repeats": 0, "blocks": 1}
        _add_read(part, {**read, "dac": samples * sizes[0], "adc": samples * sizes[1]}, costs)
    digital = _digital(counts["update_samples"] * cells, 8 * cells * counts["mini_batches"])
    part["serial"] |= digital["serial"]
    return part | {name: digital[name] for name in digital["serial"]}


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _NAMES}


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
