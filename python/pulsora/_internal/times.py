"""Times since programming, as numbers of seconds or in words."""

from __future__ import annotations

import math
import re
from typing import Any

from pulsora import _core

__all__ = ["described", "listed", "seconds"]

_UNITS = {
    "s": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 7 * 86400.0,
    "month": 30 * 86400.0,
    "year": 365 * 86400.0,
}


def seconds(time: float | str) -> float:
    """Returns a time in seconds.

    Args:
        time: A number of seconds, or a number with a unit: "1 s", "30 min", "1 hour", "1 day",
            "2 weeks", "1 month" (30 days), "1 year" (365 days).

    Raises:
        ConfigError: For another text, and for numbers that are negative or not finite.
    """
    if isinstance(time, str):
        found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-z]+?)s?\s*", time)
        unit = found and (_UNITS.get(found[2]) or _UNITS.get(found[2] + "s"))
        try:
            value = float(found[1]) * unit if found and unit else math.nan
        except ValueError:
            value = math.nan
        if math.isnan(value):
            units = ", ".join(_UNITS)
            raise _core.ConfigError(
                f"time is {time!r}; write seconds, or a number and one of the units {units}"
            )
    else:
        value = _number(time)
    if not math.isfinite(value) or value < 0.0:
        raise _core.ConfigError(
            f"time is {time!r}; give seconds since the end of programming, finite and >= 0"
        )
    return value


def _number(time: Any) -> float:  # noqa: ANN401 - whatever was given
    """Returns a number as a float; ConfigError for anything else."""
    try:
        if not isinstance(time, bool):
            return float(time)
    except (TypeError, ValueError):
        pass
    raise _core.ConfigError(
        f"time is {time!r}; write a number of seconds, or a text such as '1 day'"
    ) from None


def listed(name: str, times: object) -> list[Any]:
    """Returns a list of times; ConfigError for a single one."""
    try:
        if not isinstance(times, str):
            return list(times)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        pass
    raise _core.ConfigError(f"{name} = {times!r}: give a list of times, such as [1.0, '1 day']")


def described(time: float) -> str:
    """Returns a number of seconds in the largest unit of which it is a multiple."""
    for unit in ("year", "month", "day", "hour", "min"):
        count = time / _UNITS[unit]
        if count >= 1 and count == int(count):
            plural = "s" if count > 1 and unit != "min" else ""
            return f"{int(count)} {unit}{plural}"
    return f"{time:g} s"
