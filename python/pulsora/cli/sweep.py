"""`pulsora sweep`: many runs with other settings."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pulsora import _core
from pulsora._internal.files import read_settings
from pulsora.cli.progress import console
from pulsora.sweep.settings import Sweep

if TYPE_CHECKING:
    from pulsora.sweep.trial import Outcome

__all__ = ["sweep"]

_SHOWN = 10  # best trials in the table


def sweep(
    settings: Annotated[
        Path, typer.Argument(help="A TOML or JSON file: what is searched, and how.")
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the study, and the folder of each run.")
    ] = Path("runs/sweep"),
    trials: Annotated[
        int | None, typer.Option(help="Number of runs.", show_default="that of the file")
    ] = None,
    processes: Annotated[int, typer.Option(help="Runs at the same time.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads of each run.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the sweep in --out.", show_default="off")
    ] = False,
    device: Annotated[
        str, typer.Option(help="Where to train: cpu, cuda or cuda:<number>.")
    ] = "cpu",
) -> None:
    """Run a sweep: many runs, whose settings Optuna chooses by their results.

    A sweep that was stopped and resumed has the runs of one that was not.
    """
    table = read_settings("settings", settings)
    if trials is not None:
        table["trials"] = trials
    made = Sweep.from_dict(table)
    _core.require_place(device, threads)
    try:
        importlib.import_module("optuna")
    except ImportError as error:
        raise ImportError(f"a sweep needs optuna ({error}); pip install optuna") from error
    from pulsora.sweep.run import run_sweep, table_of  # noqa: PLC0415 - needs torch and optuna

    def tell(number: int, chosen: dict[str, Any], outcome: "Outcome") -> None:
        result = (
            f"{made.objective} {outcome.value:.4g}" if outcome.value is not None else outcome.state
        )
        values = ", ".join(f"{name} {value}" for name, value in chosen.items())
        console.print(
            f"trial {number + 1} of {made.total}: {result} ({values}) {outcome.reason}".rstrip(),
            highlight=False,
            markup=False,
        )

    try:
        study = run_sweep(
            table,
            out,
            resume=resume,
            processes=processes,
            threads=threads,
            device=device,
            on_trial=tell,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; go on by --resume ({out} has the runs so far)") from None
    rows = table_of(study, made)
    console.print(_best(rows, made))
    console.print(f"written: {out}/trials.csv, study.db, trial-*", highlight=False)
    if all(row["state"] == "failed" for row in rows):
        raise ValueError(f"all {len(rows)} trials failed; the first: {rows[0]['reason']}")


def _best(rows: list[dict[str, Any]], made: Sweep) -> Table:
    """The best trials."""
    sign = -1.0 if made.maximizes else 1.0
    ended = [row for row in rows if row[made.objective] is not None]
    ended.sort(key=lambda row: (sign * row[made.objective], row["trial"]))
    table = Table()
    names = ["trial", made.objective, *made.search]
    for name in names:
        table.add_column(name, justify="right")
    for row in ended[:_SHOWN]:
        shown = {**row, "trial": f"{row['trial']:04d}"}
        table.add_row(*(_text(shown[name]) for name in names))
    return table


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
