"""Runs that a report shows, from their folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsora._internal.checks import reading
from pulsora.records.files import FILE, epoch_line, parse, run_line, to_lines
from pulsora.records.flat import flat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pulsora.records.files import Record, Records

__all__ = ["COUNTS", "ShownRun", "differing", "load", "remarks"]

_METRICS = "metrics.json"

COUNTS = frozenset(
    {"epoch", "seconds", "cells", "pulses", "pulses_per_cell", "transfers", "gain", "undelivered"}
)
"""Metrics of an epoch that do not tell how well the model does."""


@dataclass(frozen=True)
class ShownRun:
    """A run in a report.

    Attributes:
        label: Name that no other run of the report has.
        folder: The folder of the run.
        records: Its settings and epochs.
    """

    label: str
    folder: Path
    records: Records

    @property
    def epochs(self) -> Sequence[Record]:
        """The records of the epochs; there is at least one."""
        return self.records.epochs

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that tell how well the model does, in their order."""
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch["metrics"])
        return [name for name in names if name not in COUNTS]

    def values(self, metric: str) -> list[float | None]:
        """A metric of each epoch; None where there is none."""
        return [epoch["metrics"].get(metric) for epoch in self.epochs]


def load(paths: Sequence[Path]) -> list[ShownRun]:
    """Reads runs from their folders.

    Args:
        paths: Folders of runs, or folders that contain the folders of runs, as `pulsora demo` and
            `pulsora sweep` write them.

    Raises:
        ValueError: for a folder that is no run, damaged records, a run without epochs, a run that
            is named twice, and runs without a metric in common.
        OSError: if a file cannot be read.
    """
    folders = [folder for path in paths for folder in _folders(path)]
    places = [folder.resolve() for folder in folders]
    for number, folder in enumerate(folders):
        if places[number] in places[:number]:
            raise ValueError(f"{folder} is named twice; name each run once")
    runs = [
        ShownRun(label, folder, _records(folder))
        for label, folder in zip(_labels(folders), folders, strict=True)
    ]
    for run in runs:
        if not run.epochs:
            raise ValueError(f"{run.folder} has no epoch yet; report it after its first epoch")
    _require_one_kind(runs)
    return runs


def _folders(path: Path) -> list[Path]:
    """The folders of runs that a path names."""
    if not path.exists():
        raise FileNotFoundError(
            f"run = '{path}': there is no such folder; name the --out of a 'pulsora train'"
        )
    if _is_run(path):
        return [path]
    inside = sorted(one for one in path.iterdir() if _is_run(one)) if path.is_dir() else []
    if not inside:
        raise ValueError(
            f"run = '{path}' is no run: neither it nor a folder in it has {FILE} or {_METRICS}, "
            "which 'pulsora train' writes"
        )
    return inside


def _is_run(path: Path) -> bool:
    return (path / FILE).is_file() or (path / _METRICS).is_file()


def _labels(folders: Sequence[Path]) -> list[str]:
    """Names of folders, or the whole paths if two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _records(folder: Path) -> Records:
    """The records of a run; of an older run without them, its metrics."""
    path = folder / FILE
    with reading("run", path, "name the folder of a run"):
        if path.is_file():
            return parse(path.read_bytes(), path)
        path = folder / _METRICS
        content = path.read_bytes()
    try:
        saved = json.loads(content)
        lines = [epoch_line(number, one) for number, one in enumerate(saved["epochs"], 1)]
        name = str(saved["experiment"].get("algorithm") or "tile")
        return parse(to_lines([run_line(name, saved["experiment"]), *lines]), path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged, or no metrics of 'pulsora train' ({type(error).__name__}: "
            f"{error}); 'pulsora train --resume' writes it anew from the checkpoint"
        ) from None


def _require_one_kind(runs: Sequence[ShownRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if not set(run.metrics) & set(first.metrics):
            raise ValueError(
                f"{run.folder} has {_listed(run.metrics)}, and {first.folder} has "
                f"{_listed(first.metrics)}: runs of different kinds have no curve in common; "
                "write a report of each"
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no metrics"


def remarks(runs: Sequence[ShownRun]) -> list[str]:
    """Sentences about runs that a reader of their report should know."""
    made = []
    data = list(dict.fromkeys(str(run.records.settings.get("data")) for run in runs))
    if len(data) > 1:
        made.append(
            f"These runs have different data ({', '.join(data)}): "
            "their losses and accuracies do not compare."
        )
    bare = [run.label for run in runs if not any(_has_arrays(epoch) for epoch in run.epochs)]
    if bare:
        made.append(
            f"Records of arrays are missing in {', '.join(bare)}: an earlier version wrote them."
        )
    return made


def _has_arrays(epoch: Record) -> bool:
    return bool(epoch["tiles"] or epoch["parameters"])


def differing(runs: Sequence[ShownRun]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Settings that differ between runs, one text for each run, and settings that all share."""
    tables = [flat(run.records.settings) for run in runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = {name: [table.get(name, "") for table in tables] for name in names}
    other = {name: row for name, row in rows.items() if len(set(row)) > 1}
    return other, {name: row[0] for name, row in rows.items() if name not in other}
