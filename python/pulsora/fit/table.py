"""Measurements in CSV files."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulsora._internal.checks import reading
from pulsora.fit.pulses import Trace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

__all__ = ["read_traces"]

_DIRECTIONS = {"up": 1, "down": -1, "1": 1, "+1": 1, "-1": -1}
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


def read_traces(path: str | os.PathLike[str]) -> tuple[list[Trace], str]:
    """The traces of a CSV file, and whether its readings are "conductance" or "weight".

    The first line names the columns: `pulse`, `direction` (up or down, 1 or -1), `conductance` or
    `weight`, and, if there are several, `cell` and `cycle`; other columns are left alone. A row is
    a reading after the pulse of that number. A trace is the rows of one cell and cycle; it begins
    at its first row, whose direction does not count. If pulse numbers rise by n, n pulses of that
    direction were sent.

    Raises:
        ValueError: if the file is no such table, naming the line and the column.
        OSError: if the file cannot be read.
    """
    file = Path(path)
    try:
        with (
            reading("path", file, "give a CSV file of measured pulses, or up and down"),
            file.open(newline="", encoding="utf-8-sig") as rows,
        ):
            return _read(file.name, csv.reader(rows, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no CSV file: {error}") from error


def _read(name: str, lines: Iterator[list[str]]) -> tuple[list[Trace], str]:
    header = [word.strip().lower() for word in next(lines, [])]
    unit = _unit_of(name, header)
    open_: dict[tuple[str, str], _Trace] = {}
    for number, words in _filled(lines):
        where = f"{name}, line {number}"
        if len(words) != len(header):
            raise ValueError(
                f"{where}: {len(words)} columns, and the first line names {len(header)}"
            )
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
        if row["direction"].lower() not in _DIRECTIONS:
            raise ValueError(
                f"{where}, column direction: {row['direction']!r}; write up or down (or 1 or -1)"
            )
        trace.add(pulse, _DIRECTIONS[row["direction"].lower()] > 0, value)
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


def _unit_of(name: str, header: list[str]) -> str:
    twice = sorted({word for word in header if header.count(word) > 1})
    if twice:
        raise ValueError(
            f"{name}, line 1: column {twice[0]} is there twice; name columns differently"
        )
    values = [word for word in _VALUES if word in header]
    missing = [word for word in _NEEDED if word not in header]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise ValueError(f"{name}, line 1: {header[0]!r} is one column; separate columns by commas")
    if not values:
        missing.append("conductance (or weight)")
    if missing:
        raise ValueError(
            f"{name}, line 1: column {missing[0]} is missing (there are: "
            f"{', '.join(header) or 'none'}); "
            "the first line names the columns"
        )
    if len(values) > 1:
        raise ValueError(f"{name}, line 1: columns conductance and weight; leave one of them out")
    return values[0]


def _whole(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no whole number") from None


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no number") from None
    if not math.isfinite(value):
        raise ValueError(
            f"{where}: {text} is no reading; leave out the row (pulse numbers may skip)"
        )
    return value
