"""Costs of events, which a user gives: energy in pJ, time in ns, area in square micrometres."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsora._internal.files import read_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["AREAS", "EVENTS", "Cost", "Costs"]

EVENTS = {
    "pulse": "a pulse at a cell: a slot in which both of its lines fire",
    "slot": "a time slot of a pulse train, on all lines of an array at once",
    "line_write": "a line of an array that is written by counted pulses",
    "array_read": "a read of a physical array, without its converters",
    "cell_read": "a read of a cell",
    "dac": "a conversion by a DAC",
    "adc": "a conversion by an ADC",
    "digital_operation": "a digital multiplication with an addition",
    "digital_byte": "a byte that is read from digital memory or written to it",
}
"""Events that have costs, by name, with their meaning."""

AREAS = ("cell", "dac", "adc")
"""Parts that have an area."""


@dataclass(frozen=True)
class Cost:
    """The cost of one event.

    Attributes:
        energy: In pJ, 0 or more; None if it is not known.
        time: In ns, 0 or more; None if it is not known.
    """

    energy: float | None = None
    time: float | None = None


@dataclass(frozen=True)
class Costs:
    """Costs of events, and what converters share.

    Attributes:
        events: The costs of events, by names of `EVENTS`; those that are missing are not known.
        area: Areas of a cell, a DAC and an ADC in square micrometres, by names of `AREAS`.
        lines_per_dac: Input lines that share a DAC, which converts them one after another.
        lines_per_adc: Output lines that share an ADC, likewise.

    Raises:
        ValueError: for an unknown name, or a number out of range.
    """

    events: Mapping[str, Cost] = field(default_factory=dict)
    area: Mapping[str, float] = field(default_factory=dict)
    lines_per_dac: int = 1
    lines_per_adc: int = 1

    def __post_init__(self) -> None:
        for name, cost in self.events.items():
            _require_known("events", name, EVENTS)
            for what in ("energy", "time"):
                _require_number(f"events.{name}.{what}", getattr(cost, what))
        for name, value in self.area.items():
            _require_known("area", name, AREAS)
            _require_number(f"area.{name}", value)
        for name in ("lines_per_dac", "lines_per_adc"):
            lines = getattr(self, name)
            if type(lines) is not int or lines < 1:
                raise ValueError(f"{name} is {lines!r}; give a number of lines, 1 or more")

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Costs:
        """Costs from a table, as a TOML file of costs holds it.

        Raises:
            ValueError: for an unknown name, a value of another kind, or a number out of range.
        """
        known = ("events", "area", "lines_per_dac", "lines_per_adc")
        for name in table:
            _require_known("costs", name, known)
        events = {}
        for name, cost in _table("events", table.get("events", {})).items():
            _require_known("events", name, EVENTS)
            for part in _table(f"events.{name}", cost):
                _require_known(f"events.{name}", part, ("energy", "time", "source"))
            events[name] = Cost(cost.get("energy"), cost.get("time"))
        area = {
            name: value
            for name, value in _table("area", table.get("area", {})).items()
            if name != "source"
        }
        lines = {name: table[name] for name in known[2:] if name in table}
        return cls(events, area, **lines)

    @classmethod
    def load(cls, path: str | Path) -> Costs:
        """Costs from a TOML or JSON file.

        A file may say where a number comes from by `source`, a text that is not read.

        Raises:
            ValueError: for a file that is no table of costs.
            OSError: if the file cannot be read.
        """
        path = Path(path)
        try:
            return cls.from_dict(read_settings("costs", path))
        except ValueError as error:
            raise ValueError(f"costs = '{path}': {error}") from None


def _table(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}; give a table")  # noqa: TRY004 - from a file
    return value


def _require_known(where: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{where} has {name!r}: {meant}there are {', '.join(names)}")


def _require_number(name: str, value: object) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}; give a finite number, 0 or more")
