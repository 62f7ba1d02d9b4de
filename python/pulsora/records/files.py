"""Files of records: one JSON object per line.

The first line describes the run:

    {"kind": "run", "form": 1, "version": "0.1.0", "name": "lrtt", "settings": {"lr": 0.4, ...}}

Each further line is an epoch:

    {"kind": "epoch", "epoch": 1, "metrics": {"loss": 1.2, "accuracy": 0.8, ...},
     "tiles": [{"layer": "0", "tile": 0, "kind": "lrtt", "shape": [64, 64],
                "statistics": {...}, "hardware": {...},
                "arrays": {"visible": {...}, "fast_a": {...}}}],
     "parameters": [{"name": "2.weight", "distribution": {...}}]}

`statistics` is `tile.statistics()`, and `hardware` (absent in older records) is
`tile.hardware_counts()`. An array has `cells`, `saturated` (cells at a bound; absent where there
are no bounds) and `distribution`: mean, std, low, high, and `counts` in equal bins from low to
high. Numbers that are not finite are null.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pulsora._core import __version__
from pulsora._internal.checks import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "FILE",
    "Record",
    "Records",
    "epoch_line",
    "parse",
    "plain",
    "read",
    "run_line",
    "scalars",
    "to_lines",
]

Record: TypeAlias = dict[str, Any]
"""An epoch, as a line of a file has it."""

FILE = "records.jsonl"
"""Name of the file in the folder of a run."""

_FORM = 1
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Records:
    """The content of a file of records.

    Attributes:
        name: Name of the run.
        settings: Settings of the run, JSON values by name.
        epochs: The record of each epoch.
    """

    name: str
    settings: Mapping[str, Any]
    epochs: Sequence[Record]


def run_line(name: str, settings: Mapping[str, Any]) -> Record:
    """The first line of a file, which describes the run."""
    return {
        "kind": "run",
        "form": _FORM,
        "version": __version__,
        "name": name,
        "settings": plain(settings),
    }


def epoch_line(
    epoch: int,
    metrics: Mapping[str, float],
    tiles: Sequence[Record] = (),
    parameters: Sequence[Record] = (),
) -> Record:
    """The line of an epoch."""
    return {
        "kind": "epoch",
        "epoch": epoch,
        "metrics": plain(metrics),
        "tiles": list(tiles),
        "parameters": list(parameters),
    }


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """The value as JSON has it: tables, lists, text; None in the place of infinity and NaN."""
    if hasattr(value, "items"):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else None


def to_lines(lines: Iterable[Record]) -> bytes:
    """The lines of a file, as bytes."""
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines).encode()


def read(path: Path) -> Records:
    """Reads a file of records.

    Raises:
        ValueError: for a damaged file; the message names the line.
        OSError: if the file cannot be read.
    """
    with reading("records", path, "name the records.jsonl of a run"):
        content = path.read_bytes()
    return parse(content, path)


def parse(content: bytes, path: Path) -> Records:
    """The records in the content of a file; ValueError, naming the file and the line, if damaged.

    Epochs must be numbered from 1 on without a gap.
    """
    described: Record | None = None
    epochs: list[Record] = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            entry = json.loads(line)
            if described is None:
                described = _require_run(entry)
            else:
                epochs.append(_require_epoch(entry, len(epochs) + 1))
        except _DAMAGE as error:  # noqa: PERF203 - the error names the line
            raise ValueError(
                f"{path}, line {number}: this is no record ({type(error).__name__}: {error}); "
                "'pulsora train --resume' writes the file anew from the checkpoint"
            ) from None
    if described is None:
        raise ValueError(f"{path} is empty; 'pulsora train --resume' writes it anew")
    return Records(described["name"], described["settings"], epochs)


def _require_run(entry: Any) -> Record:  # noqa: ANN401 - any value of JSON
    if entry["kind"] != "run" or not isinstance(entry["name"], str):
        raise ValueError("the first line must describe the run")
    if entry["form"] != _FORM:
        raise ValueError(f"form {entry['form']}, and this version reads form {_FORM}")
    entry["settings"].items()
    return dict(entry)


def _require_epoch(entry: Any, expected: int) -> Record:  # noqa: ANN401 - any value of JSON
    if entry["kind"] != "epoch" or entry["epoch"] != expected:
        raise ValueError(f"epoch {expected} must be here")
    for value in entry["metrics"].values():
        _require_number(value)
    for tile in entry["tiles"]:
        str(tile["layer"]), int(tile["tile"])
        tile["statistics"].items()
        _require_hardware(tile.get("hardware"))
        for array in tile["arrays"].values():
            _require_number(array["cells"])
            _require_number(array.get("saturated"))
            _require_distribution(array["distribution"])
    for parameter in entry["parameters"]:
        str(parameter["name"])
        _require_distribution(parameter["distribution"])
    return dict(entry)


def _require_hardware(given: Mapping[str, Any] | None) -> None:
    if given is None:
        return
    for name, value in given.items():
        for entry in value if name in {"arrays", "reads"} else [{name: value}]:
            for key, number in entry.items():
                if key not in {"name", "array", "use"} and type(number) is not int:
                    raise ValueError(f"{key}: {number!r} is no count")


def _require_distribution(given: Mapping[str, Any]) -> None:
    for name in ("mean", "std", "low", "high"):
        _require_number(given[name])
    for count in given["counts"]:
        _require_number(count)


def _require_number(value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{value!r} is no number")


def scalars(record: Record) -> dict[str, float]:
    """All numbers of an epoch by name, for trackers; those that are not finite are left out.

    Names are those of the metrics, `LAYER/TILE/NAME` for the statistics of a tile (such as
    `0/0/pulses`, `0/0/last_transfer/gain`), and `LAYER/TILE/ARRAY/NAME` for saturated (a share),
    mean, std, low and high of an array.
    """
    found: dict[str, float] = {}
    _gather(found, "", record["metrics"])
    for tile in record["tiles"]:
        place = f"{tile['layer']}/{tile['tile']}/"
        _gather(found, place, tile["statistics"])
        for name, array in tile["arrays"].items():
            _gather(found, f"{place}{name}/", array["distribution"])
            if array.get("saturated") is not None and array["cells"]:
                found[f"{place}{name}/saturated"] = array["saturated"] / array["cells"]
    for parameter in record["parameters"]:
        _gather(found, f"{parameter['name']}/", parameter["distribution"])
    return found


def _gather(found: dict[str, float], place: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _gather(found, f"{place}{name}/", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{place}{name}"] = float(value)
