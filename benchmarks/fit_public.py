"""How close fitted devices come to published pulse measurements, beside exponentials.

    python benchmarks/fit_public.py --up set.csv --down reset.csv --traces 2
    python benchmarks/fit_public.py --pair gong_et_al.csv --unit weight

Nothing is downloaded: bring the files. A file is a table of numbers, separated by commas,
semicolons, tabs or blanks. Lines that are none are left out. Each column is a trace of one cell,
the first reading before any pulse; empty cells end a trace. Data that were measured publicly:

    cross-sim (its first commit), examples/lookup_table_generation/lookup_table_example: set.csv
        and reset.csv, one device, 39 ramps up and 40 down in columns
    IBM/aihwkit, examples/csv/gong_et_al.csv: weights of up and of down pulses in two columns
    loriyaya/Neuro3, nonlinear_fit.m, and other versions of this script: conductances of LTP and
        LTD in arrays; copy each into a file, and LTD from its first pulse on (--reverse down)
    leejiwon8433/Non-linear-Fitting-for-NeuroSim, data/raw/LTP_raw_test.tsv and LTD_raw_test.tsv:
        time and conductance (--skip 1), LTD backwards (--reverse down)

Printed are, for each model, its numbers and its error along up and along down traces: the root mean
square distance of the mean cell to the mean readings, over their range, from the first readings on.
The last row has the errors of one exponential of the pulse number per direction, which has three
numbers and begins where it fits best.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Trace = NDArray[np.float64]


def columns_of(path: Path, skip: int = 0) -> list[Trace]:
    """The columns of a table of numbers, without the first ones."""
    rows: list[list[float]] = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        mark = next((mark for mark in ",;\t" if mark in line), None)
        words = line.split(mark) if mark else re.split(r"\s+", line.strip())
        try:
            rows.append([float(word) if word.strip() else np.nan for word in words])
        except ValueError:
            continue  # a line of words
    width = max(map(len, rows), default=0)
    table = np.array([row + [np.nan] * (width - len(row)) for row in rows])
    columns = [column[np.isfinite(column)] for column in table.T[skip:]] if rows else []
    found = [column for column in columns if len(column)]
    if not found:
        raise SystemExit(f"{path} has no column of numbers after {skip} that are skipped")
    return found


def mean_trace(traces: Sequence[Trace]) -> Trace:
    """Means over the traces, as far as the shortest goes."""
    shortest = min(map(len, traces))
    mean: Trace = np.mean([trace[:shortest] for trace in traces], axis=0)
    return mean


def exponential_error(trace: Trace) -> float:
    """Least root mean square distance of a + b exp(-k/t) to a trace."""
    k = np.arange(len(trace), dtype=float)
    errors = []
    for time in np.geomspace(0.2, 20.0 * len(trace), 400):
        basis = np.stack([np.ones_like(k), np.exp(-k / time)], axis=1)
        left = trace - basis @ np.linalg.lstsq(basis, trace, rcond=None)[0]
        errors.append(float(np.sqrt(np.mean(left**2))))
    return min(errors)


def compared(
    up: Sequence[Trace],
    down: Sequence[Trace],
    unit: str = "conductance",
    models: Sequence[str] | None = None,
) -> list[tuple[str, int, float, float]]:
    """Name, numbers, and errors up and down of each model, the chosen first, and of exponentials.

    All traces are cycles of one cell.
    """
    _, report = pl.fit.device(up=[[*up]], down=[[*down]], unit=unit, models=models)
    rows = [
        (one.model, len(one.estimate.names), one.curve["up"], one.curve["down"])
        for one in report.candidates
    ]
    readings = np.concatenate([*up, *down])
    width = float(readings.max() - readings.min())
    errors = [exponential_error(mean_trace(traces)) / width for traces in (up, down)]
    return [*rows, ("exponentials", 6, errors[0], errors[1])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--up", type=Path, help="table of up traces")
    parser.add_argument("--down", type=Path, help="table of down traces")
    parser.add_argument("--pair", type=Path, help="table of two columns, up and down")
    parser.add_argument("--unit", default="conductance", choices=("conductance", "weight"))
    parser.add_argument("--traces", type=int, help="number of traces to take (default: all)")
    parser.add_argument("--skip", type=int, default=0, help="columns to skip, such as a time")
    parser.add_argument("--reverse", choices=("up", "down"), help="a direction listed backwards")
    parser.add_argument("--models", nargs="+", help="models to fit (default: all)")
    given = parser.parse_args(arguments)
    if (given.pair is None) == (given.up is None or given.down is None):
        parser.error("give either --pair, or --up and --down")
    if given.pair is not None:
        both = columns_of(given.pair, given.skip)
        if len(both) != 2:
            parser.error(f"{given.pair} has {len(both)} columns of numbers, not two")
        ways = {"up": both[:1], "down": both[1:]}
    else:
        files = {"up": given.up, "down": given.down}
        ways = {way: columns_of(path, given.skip)[: given.traces] for way, path in files.items()}
    if given.reverse:
        ways[given.reverse] = [trace[::-1] for trace in ways[given.reverse]]
    print(f"{'model':14} {'numbers':>7} {'up':>7} {'down':>7}")
    for name, numbers, up, down in compared(**ways, unit=given.unit, models=given.models):
        print(f"{name:14} {numbers:7} {up:7.3f} {down:7.3f}")


if __name__ == "__main__":
    main()
