"""The page of a report."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pulsora._core import __version__
from pulsora.report.counts import ledger_section
from pulsora.report.figures import curves, histograms, style
from pulsora.report.runs import differing, remarks
from pulsora.report.series import (
    array_names,
    array_rows,
    last_transfers,
    per_epoch,
    saturated,
    shown_name,
)
from pulsora.report.style import CSS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsora.accounting import Costs
    from pulsora.report.runs import ShownRun
    from pulsora.report.series import ArrayRow, Values

__all__ = ["page"]

_MOST_PICTURES = 36  # distributions that are drawn
_MOST_ROWS = 200  # rows of the table of arrays

_TITLES = {"loss": "training loss", "accuracy": "test accuracy"}

# Numbers of a transfer: title, unit, factor.
_TRANSFERS = {
    "gain": ("gain of the last transfer", "delivered / intended", 1.0),
    "undelivered": ("not delivered by the last transfer", "%", 100.0),
    "error": ("error of the last transfer", "rms of target - weight", 1.0),
    "reads": ("reads by the last transfer", "reads of cells, mean of tiles", 1.0),
}
_VERIFIED = ("error", "reads")  # of transfers that read what they wrote


def page(runs: Sequence[ShownRun], costs: Costs | None = None) -> str:
    """The report of one run, or of several side by side, as the text of an HTML page.

    With costs of events, the ledger has energy, time and area.
    """
    title = ", ".join(run.label for run in runs)
    sections = (_summary, _training, _pulses, _transfers, _distributions, _arrays)
    parts = [*(section(runs) for section in sections), _ledger(runs, costs), _settings(runs)]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} - Pulsora</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n"
        f"<footer>Pulsora {escape(__version__)}</footer>\n</body>\n</html>\n"
    )


def _summary(runs: Sequence[ShownRun]) -> str:
    """The table of runs with their last metrics, and what a reader should know of them."""
    quality = list(dict.fromkeys(name for run in runs for name in run.metrics))
    counts = ["seconds", "cells", "pulses", "pulses_per_cell", "transfers", "gain"]
    shown = [
        name
        for name in (*quality, *counts)
        if any(run.values(name)[-1] is not None for run in runs)
    ]
    rows = []
    for number, run in enumerate(runs):
        cells = [f"<th>{_swatch(number)} {escape(run.label)}</th>", f"<td>{len(run.epochs)}</td>"]
        for name in shown:
            value = run.values(name)[-1]
            if name == "seconds":
                value = sum(one or 0.0 for one in run.values(name))
            cells.append(f"<td>{_metric(name, value)}</td>")
        rows.append("".join(cells))
    heads = [escape(_heading(name)) for name in shown]
    notes = "".join(f"<p class='remark'>{escape(one)}</p>" for one in remarks(runs))
    return _table(["run", "epochs", *heads], rows) + notes


def _heading(metric: str) -> str:
    return _TITLES.get(metric, metric.replace("_", " "))


def _metric(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100.0 * value:.1f} %" if name == "accuracy" else _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if (abs(value) >= 1e4 or float(value).is_integer()) and abs(value) < 1e15:
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.4g}"


def _training(runs: Sequence[ShownRun]) -> str:
    pictures: list[str] = []
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        factor, unit = (100.0, "%") if name == "accuracy" else (1.0, "")
        if name == "loss":
            unit = "cross entropy" if _is_trained_by_pulsora(runs) else ""
        values = _by_run(_times(run.values(name), factor) for run in runs)
        pictures.append(_curve(_heading(name), unit, values, f"metric{len(pictures)}"))
    return _section("Training", runs, pictures)


def _is_trained_by_pulsora(runs: Sequence[ShownRun]) -> bool:
    return all("data" in run.records.settings for run in runs)


def _pulses(runs: Sequence[ShownRun]) -> str:
    pulses = _by_run(per_epoch(run, "pulses_per_cell") for run in runs)
    pictures = [_curve("pulses", "pulses per cell and epoch", pulses, "pulses")]
    for number, name in enumerate(array_names(runs)):
        values = _by_run(saturated(run, name) for run in runs)
        title = f"cells at a bound, {shown_name(name)}"
        pictures.append(_curve(title, "% of cells", values, f"bound{number}"))
    return _section("Pulses and saturation", runs, pictures)


def _transfers(runs: Sequence[ShownRun]) -> str:
    made = _by_run(run.values("transfers") for run in runs)
    pictures = [_curve("transfers so far", "transfers of all tiles", made, "transfers")]
    for name, (title, unit, factor) in _TRANSFERS.items():
        values = _by_run(_times(last_transfers(run, name), factor) for run in runs)
        if name in _VERIFIED and not any(one for series in values.values() for one in series):
            continue
        pictures.append(_curve(title, unit, values, f"transfer-{name}"))
    return _section("Transfers and their fidelity", runs, pictures)


def _distributions(runs: Sequence[ShownRun]) -> str:
    """Histograms of all arrays at the end; of a single run, the first epoch stands behind."""
    found: dict[tuple[str, str], dict[int, ArrayRow]] = {}
    for number, run in enumerate(runs):
        for row in array_rows(run):
            found.setdefault((row.place, row.array), {})[number] = row
    pictures = [
        _figure(
            histograms(
                f"{place}: {array}",
                {number: row.last for number, row in rows.items()},
                rows[0].first if len(runs) == 1 else None,
                f"weights{index}",
            )
        )
        for index, ((place, array), rows) in enumerate(list(found.items())[:_MOST_PICTURES])
    ]
    note = "Density of weights after the last epoch"
    note += ", and in grey after the first." if len(runs) == 1 else "."
    if len(found) > _MOST_PICTURES:
        note += f" The first {_MOST_PICTURES} of {len(found)} arrays are drawn."
    return _section("Distribution of weights", runs, pictures, note, small=True)


def _arrays(runs: Sequence[ShownRun]) -> str:
    """The table of arrays at the end."""
    rows = [(number, row) for number, run in enumerate(runs) for row in array_rows(run)]
    if not rows:
        return ""
    lines = []
    for number, row in rows[:_MOST_ROWS]:
        share = None if row.saturated is None else 100.0 * row.saturated
        shape = (row.last[name] for name in ("mean", "std", "low", "high"))
        numbers = (row.cells, share, row.pulses, *shape)
        lines.append(
            f"<th>{_swatch(number)} {escape(runs[number].label)}</th><th>{escape(row.place)}</th>"
            f"<th>{escape(row.array)}</th>"
            + "".join(f"<td>{_number(value)}</td>" for value in numbers)
        )
    heads = ["run", "layer", "array", "cells", "at a bound, %", "pulses per cell"]
    table = _table([*heads, "mean", "std", "least", "greatest"], lines, names=3)
    if len(rows) > _MOST_ROWS:
        table += f"<p>The first {_MOST_ROWS} of {len(rows)} arrays are listed.</p>"
    return f"<section><h2>Arrays after the last epoch</h2>{table}</section>"


def _ledger(runs: Sequence[ShownRun], costs: Costs | None) -> str:
    heads, found = ledger_section(runs, costs)
    if not found:
        return ""
    lines = []
    for one in found:
        notes = escape("; ".join(one.notes))
        label = f"{_swatch(one.number)} {escape(runs[one.number].label)}"
        lines.append(
            f"<th class='run' colspan='{1 + len(heads)}'>{label} <small>{notes}</small></th>"
        )
        lines += [
            f"<th>{escape(name)}</th>" + "".join(f"<td>{value}</td>" for value in values)
            for name, values in one.rows
        ]
    said = (
        "<p>Events until the last epoch, as hardware would have them; DAC and ADC are conversions; "
        "k, M and G are 10\u00b3, 10\u2076 and 10\u2079. The last rows of a run are what digital "
        "SGD and mixed precision would do for the same samples.</p>"
    )
    return f"<section><h2>Ledger</h2>{said}{_table(['layer: array', *heads], lines)}</section>"


def _settings(runs: Sequence[ShownRun]) -> str:
    """Settings that differ, then all others."""
    other, same = differing(runs)
    made = ""
    if other:
        heads = [f"{_swatch(number)} {escape(run.label)}" for number, run in enumerate(runs)]
        made += "<h2>Settings that differ</h2>" + _table(
            ["setting", *heads], _setting_rows(other.items()), text=True
        )
    if same:
        title = "Settings in common" if len(runs) > 1 else "Settings"
        rows = _setting_rows((name, [value]) for name, value in same.items())
        made += f"<h2>{title}</h2>" + _table(["setting", "value"], rows, text=True)
    return f"<section>{made}</section>" if made else ""


def _setting_rows(settings: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    return [
        f"<th>{escape(name)}</th>" + "".join(f"<td>{escape(value) or '-'}</td>" for value in values)
        for name, values in settings
    ]


def _by_run(all_values: Iterable[Values]) -> dict[int, Values]:
    """Values of each run that has any, by its number."""
    return {
        number: values
        for number, values in enumerate(all_values)
        if any(value is not None for value in values)
    }


def _times(values: Values, factor: float) -> Values:
    return [None if value is None else factor * value for value in values]


def _curve(title: str, unit: str, values: Mapping[int, Values], name: str) -> str:
    """A figure of curves; nothing without values."""
    return _figure(curves(title, unit, values, name)) if values else ""


def _figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def _section(
    title: str,
    runs: Sequence[ShownRun],
    pictures: Sequence[str],
    note: str = "",
    *,
    small: bool = False,
) -> str:
    """A section of figures under a legend; nothing without figures."""
    drawn = "".join(pictures)
    if not drawn:
        return ""
    legend = "".join(
        f"<span>{_swatch(number)} {escape(run.label)}</span>" for number, run in enumerate(runs)
    )
    shown = f"<p class='legend'>{legend}</p>" if len(runs) > 1 else ""
    said = f"<p>{escape(note)}</p>" if note else ""
    kind = "small" if small else "large"
    return (
        f"<section><h2>{escape(title)}</h2>{said}{shown}<div class='{kind}'>{drawn}</div></section>"
    )


def _swatch(number: int) -> str:
    """A piece of the line of a run."""
    color, dashes = style(number)
    return (
        "<svg class='swatch' width='26' height='8' aria-hidden='true'>"
        f"<line x1='0' y1='4' x2='26' y2='4' stroke='{color}' stroke-width='2.5' "
        f"stroke-dasharray='{dashes or 'none'}'/></svg>"
    )


def _table(heads: Sequence[str], rows: Iterable[str], *, text: bool = False, names: int = 1) -> str:
    """A table, whose first `names` columns are names; heads and rows are HTML already."""
    top = "".join(
        f"<th{' class=name' if number < names else ''}>{head}</th>"
        for number, head in enumerate(heads)
    )
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    kind = "text" if text else "numbers"
    return (
        f"<div class='wide'><table class='{kind}'><thead><tr>{top}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )
