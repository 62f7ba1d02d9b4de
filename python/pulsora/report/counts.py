"""The ledger of runs: what hardware would have done until the last epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora.accounting.ledgers import Ledger, TileCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.accounting import Costs
    from pulsora.accounting.ledgers import Row
    from pulsora.report.runs import ShownRun

__all__ = ["ledger_of", "ledger_section"]

_COLUMNS = {
    "pulse": "pulses",
    "slot": "slots",
    "line_write": "lines written",
    "array_read": "reads",
    "repeats": "repeats",
    "dac": "DAC",
    "adc": "ADC",
    "digital_operation": "digital operations",
    "digital_byte": "digital bytes",
    "energy": "energy, pJ",
    "time": "time, ns",
    "area": "area, um2",
}
_MOST_ROWS = 100  # arrays of a run
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ledger_of(run: ShownRun, costs: Costs | None = None) -> Ledger | None:
    """The ledger of a run until its last epoch; None where its records have no counts."""
    tiles = [tile for tile in run.epochs[-1]["tiles"] if tile.get("hardware")]
    if not tiles:
        return None
    counts = [TileCounts(one["layer"], tuple(one["shape"]), one["hardware"]) for one in tiles]
    return Ledger(counts, costs)


def ledger_section(
    runs: Sequence[ShownRun], costs: Costs | None
) -> tuple[list[str], list[tuple[int, tuple[str, str], list[str]]], list[str]]:
    """Heads of columns, rows (number of the run, layer and array, numbers), and notes."""
    rows: list[tuple[int, Row, float]] = []
    note = "Digital SGD and mixed precision are what they would do for the same samples."
    notes = [f"Events until the last epoch, as hardware would have them. {note}"]
    for number, run in enumerate(runs):
        found = ledger_of(run, costs)
        if found is None:
            continue
        rows += [(number, row, 1.0) for row in (*found.rows[:_MOST_ROWS], found.total)]
        rows.append((number, found.total, float(len(run.epochs))))
        rows += [(number, row, 1.0) for row in found.alternatives.values()]
        if len(found.rows) > _MOST_ROWS:
            notes.append(f"{run.label}: the first {_MOST_ROWS} of {len(found.rows)} rows.")
        if found.missing:
            notes.append(f"{run.label}: costs that are not known: {', '.join(found.missing)}.")
    names = [name for name in _COLUMNS if any(getattr(row, name) for _, row, _ in rows)]
    lines = []
    for number, row, by in rows:
        layer = row.layer if by == 1.0 else "per epoch"
        values = [getattr(row, name) for name in names]
        shown = [
            _shown(value if value is None or name == "area" else value / by)
            for name, value in zip(names, values, strict=True)
        ]
        lines.append((number, (layer, row.array), shown))
    return [_COLUMNS[name] for name in names], lines, notes


def _shown(value: float | None) -> str:
    """A number with four digits and a prefix."""
    if value is None:
        return "-"
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.4g}\u202f{prefix}"
    return f"{value:.4g}"
