"""The ledger of runs: what hardware would have done until the last epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsora.accounting.ledgers import Ledger, TileCounts
from pulsora.report.series import shown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.accounting import Costs
    from pulsora.accounting.ledgers import Row
    from pulsora.report.runs import ShownRun

__all__ = ["RunLedger", "ledger_of", "ledger_section"]

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
    "energy": "energy",
    "time": "time",
    "area": "area",
}
_MOST_ROWS = 100  # arrays of a run
_SPACE = "\u202f"
# Units by the steps of 1000 that a number is above the first.
_COUNTS = ("", "k", "M", "G", "T", "P")
_UNITS = {"energy": ("pJ", "nJ", "\u00b5J", "mJ", "J", "kJ"), "time": ("ns", "\u00b5s", "ms", "s")}


@dataclass(frozen=True)
class RunLedger:
    """The ledger of a run as it is shown.

    Attributes:
        number: Number of the run.
        notes: What a reader should know.
        rows: Name of each row and its numbers with their units.
    """

    number: int
    notes: list[str]
    rows: list[tuple[str, list[str]]]


def ledger_of(run: ShownRun, costs: Costs | None = None) -> Ledger | None:
    """The ledger of a run until its last epoch; None where its records have no counts."""
    tiles = [tile for tile in run.epochs[-1]["tiles"] if tile.get("hardware")]
    if not tiles:
        return None
    counts = [TileCounts(one["layer"], tuple(one["shape"]), one["hardware"]) for one in tiles]
    return Ledger(counts, costs)


def ledger_section(
    runs: Sequence[ShownRun], costs: Costs | None
) -> tuple[list[str], list[RunLedger]]:
    """Heads of the columns of numbers, and the ledger of each run that has one."""
    found = [(number, ledger_of(run, costs)) for number, run in enumerate(runs)]
    ledgers = [(number, one) for number, one in found if one is not None]
    rows = [row for _, one in ledgers for row in (one.total, *one.alternatives.values())]
    names = [name for name in _COLUMNS if any(getattr(row, name) for row in rows)]
    heads = [_COLUMNS[name] for name in names]
    return heads, [
        _run_ledger(number, one, len(runs[number].epochs), names) for number, one in ledgers
    ]


def _run_ledger(number: int, ledger: Ledger, epochs: int, names: Sequence[str]) -> RunLedger:
    notes = []
    if len(ledger.rows) > _MOST_ROWS:
        notes.append(f"the first {_MOST_ROWS} of {len(ledger.rows)} rows")
    if ledger.missing:
        notes.append(f"costs that are not known: {', '.join(ledger.missing)}")
    rows = [
        (f"{row.layer}: {shown_name(row.array)}", _numbers(row, names))
        for row in ledger.rows[:_MOST_ROWS]
    ]
    rows.append(("total", _numbers(ledger.total, names)))
    rows.append(("total per epoch", _numbers(ledger.total, names, epochs)))
    rows += [(f"by {name}", _numbers(row, names)) for name, row in ledger.alternatives.items()]
    return RunLedger(number, notes, rows)


def _numbers(row: Row, names: Sequence[str], epochs: int = 1) -> list[str]:
    return [_shown(name, getattr(row, name), 1 if name == "area" else epochs) for name in names]


def _shown(name: str, value: float | None, by: int) -> str:
    """A number with three digits and its unit."""
    if value is None:
        return "-"
    value /= by
    if name == "area":
        return (
            f"{value:.3g}{_SPACE}\u00b5m\u00b2"
            if value < 1e4
            else f"{value / 1e6:.3g}{_SPACE}mm\u00b2"
        )
    units = list(_UNITS.get(name, _COUNTS))
    while value >= 999.5 and len(units) > 1:
        value /= 1000.0
        del units[0]
    return f"{value:.3g}{_SPACE}{units[0]}".rstrip(_SPACE)
