"""Measurements in CSV files."""

from __future__ import annotations

import csv
import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulsora._internal.checks import reading
from pulsora.fit.arrays import traces_of
from pulsora.fit.pulses import Trace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["read_columns", "read_traces"]

_NEEDED = ("pulse", "direction")
_VALUES = ("conductance", "weight")
_LONGEST_GAP = 10_000  # most pulses without a reading


class _Trace:
    """A trace while its rows are read."""

    def __init__(self, pulse: int, value: float) -> None:
        self.pulse = pulse
        self.values = [value]
        self.up: list[bool] = []

    def add(self, pulse: int, up: bool, value: float) -> None:
        missing = pulse - self.pulse - 1
        self.values += [math.nan] * missing + [value]
        self.up += [up] * (missing + 1)
        self.pulse = pulse


def read_traces(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, unit: str = "conductance"
) -> tuple[list[Trace], str]:
    """The traces of a CSV file, and whether its readings are "conductance" or "weight".

    The first line names the columns, unless `columns` does: `pulse`, `direction` (up or down, 1 or
    -1), `conductance` or `weight`, and, if there are several, `cell` and `cycle`; other columns are
    left alone. A row is a reading after the pulse of that number. A trace is the rows of one cell
    and cycle; it begins at its first row, whose direction does not count. If pulse numbers rise by
    n, n pulses of that direction were sent.

    A table of the columns `up` and `down` has one trace of each, a reading in every row, in the
    given unit; the shorter column ends with empty cells.

    Raises:
        ValueError: if the file is no such table, naming the line and the column.
        OSError: if the file cannot be read.
    """
    advice = "give a CSV file of measured pulses, or up and down"
    with _lines_of(path, columns, advice) as (name, header, lines):
        if sorted(header) == ["down", "up"]:
            return _read_pair(name, header, lines), unit
        return _read(name, header, lines)


def read_columns(
    path: str | os.PathLike[str],
    names: Sequence[str],
    words: Sequence[str],
    optional: Sequence[str],
) -> dict[str, list[float]]:
    """The columns of a CSV file whose first line names them; others are left alone.

    Args:
        path: The file.
        names: Columns that must be there.
        words: Columns of any text; each text becomes a number, equal texts the same one.
        optional: Columns that may be there.

    Raises:
        ValueError: if the file is no such table, naming the line and the column.
        OSError: if the file cannot be read.
    """
    with _lines_of(path, None, "give a CSV file of readings, or the columns") as (
        name,
        header,
        lines,
    ):
        _require_names(name, header, [word for word in names if word not in header])
        found: dict[str, list[float]] = {word: [] for word in (*names, *optional) if word in header}
        seen: dict[str, int] = {}
        for number, texts in _filled(lines):
            where = f"{name}, line {number}"
            _require_columns(where, texts, header)
            for word, values in found.items():
                text = texts[header.index(word)].strip()
                if word in words:
                    values.append(seen.setdefault(text, len(seen)))
                else:
                    values.append(_number(f"{where}, column {word}", text, ""))
    if not found[names[0]]:
        raise ValueError(f"{name}: there are no rows below the first line")
    return found


@contextmanager
def _lines_of(
    path: str | os.PathLike[str], columns: Sequence[str] | None, advice: str
) -> Iterator[tuple[str, list[str], Iterator[list[str]]]]:
    """The name of a CSV file, the names of its columns, and its lines."""
    file = Path(path)
    try:
        with reading("path", file, advice), file.open(newline="", encoding="utf-8-sig") as rows:
            lines = csv.reader(rows, strict=True)
            names = next(lines, []) if columns is None else columns
            yield file.name, [word.strip().lower() for word in names], lines
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no CSV file: {error}") from error


def _read_pair(name: str, header: list[str], lines: Iterator[list[str]]) -> list[Trace]:
    """The traces of a table of two columns, up and down."""
    found: dict[str, list[float]] = {word: [] for word in header}
    for number, words in _filled(lines):
        where = f"{name}, line {number}"
        _require_columns(where, words, header)
        for word, text in zip(header, words, strict=True):
            empty = text.strip() == ""
            found[word].append(math.nan if empty else _number(f"{where}, column {word}", text))
    if not found["up"]:
        raise ValueError(f"{name}: there are no rows of readings")
    return traces_of(found["up"], found["down"])


def _require_columns(where: str, words: list[str], header: list[str]) -> None:
    if len(words) != len(header):
        raise ValueError(f"{where}: {len(words)} columns, and {len(header)} are named")


def _read(name: str, header: list[str], lines: Iterator[list[str]]) -> tuple[list[Trace], str]:
    unit = _unit_of(name, header)
    open_: dict[tuple[str, str], _Trace] = {}
    for number, words in _filled(lines):
        where = f"{name}, line {number}"
        _require_columns(where, words, header)
        row = dict(zip(header, (word.strip() for word in words), strict=True))
        key = row.get("cell", ""), row.get("cycle", "")
        pulse = _whole(f"{where}, column pulse", row["pulse"])
        value = _number(f"{where}, column {unit}", row[unit])
        trace = open_.get(key)
        if trace is None:
            open_[key] = _Trace(pulse, value)
            continue
        if not 0 < pulse - trace.pulse <= _LONGEST_GAP:
            raise ValueError(
                f"{where}, column pulse: {pulse} after {trace.pulse}; numbers rise within a cell "
                f"and cycle, by {_LONGEST_GAP} at most. Give every sequence of pulses a cycle of "
                "its own"
            )
        trace.add(pulse, _is_up(f"{where}, column direction", row["direction"]), value)
    if not open_:
        raise ValueError(f"{name}: there are no rows below the first line")
    traces = [
        Trace(cell, cycle, np.array(trace.values), np.array(trace.up, bool))
        for (cell, cycle), trace in open_.items()
    ]
    return traces, unit


def _filled(lines: Iterator[list[str]]) -> Iterable[tuple[int, list[str]]]:
    for words in lines:
        if any(word.strip() for word in words):
            yield getattr(lines, "line_num", 0), words


def _require_names(
    name: str, header: list[str], missing: Sequence[str], otherwise: str = ""
) -> None:
    if header and all(map(_is_number, header)):
        raise ValueError(
            f"{name}, line 1: there are numbers in place of the names of columns; write names into "
            f"the first line{otherwise}"
        )
    twice = sorted({word for word in header if header.count(word) > 1})
    if twice:
        raise ValueError(
            f"{name}, line 1: column {twice[0]} is there twice; name columns differently"
        )
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise ValueError(f"{name}, line 1: {header[0]!r} is one column; separate columns by commas")
    if missing:
        raise ValueError(
            f"{name}, line 1: column {missing[0]} is missing (there are: "
            f"{', '.join(header) or 'none'}); "
            "the first line names the columns"
        )


def _unit_of(name: str, header: list[str]) -> str:
    values = [word for word in _VALUES if word in header]
    missing = [word for word in _NEEDED if word not in header]
    otherwise = (
        ", or give them: columns=('up', 'down') (--columns up,down) for a table of two columns, up "
        "and down"
    )
    missing += [] if values else ["conductance (or weight)"]
    _require_names(name, header, missing, otherwise)
    if len(values) > 1:
        raise ValueError(f"{name}, line 1: columns conductance and weight; leave one of them out")
    return values[0]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_up(where: str, text: str) -> bool:
    words = {"up": 1.0, "down": -1.0}
    value = words.get(text.lower(), float(text) if _is_number(text) else 0.0)
    if abs(value) != 1.0:
        raise ValueError(f"{where}: {text!r}; write up or down (or 1 or -1)")
    return value > 0.0


def _whole(where: str, text: str) -> int:
    value = float(text) if _is_number(text) else math.nan
    if not value.is_integer():
        raise ValueError(f"{where}: {text!r} is no whole number")
    return int(value)


def _number(where: str, text: str, note: str = " (pulse numbers may skip)") -> float:
    if text.strip() and not _is_number(text):
        raise ValueError(f"{where}: {text!r} is no number")
    value = float(text) if text.strip() else math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"{where}: {text.strip() or 'an empty cell'} is no reading; leave out the row{note}"
        )
    return value
