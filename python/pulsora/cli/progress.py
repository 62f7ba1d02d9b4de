"""Console, progress bars and result tables of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsora.trackers.writers import Tracker
    from pulsora.training.run import Metrics, Run

__all__ = ["console", "metrics_table", "progress_bar", "train_with_bar"]

console = Console()

# Heading and number format of each metric.
_COLUMNS = {
    "loss": ("loss", ".3f"),
    "accuracy": ("test accuracy", ".1%"),
    "seconds": ("seconds", ".2f"),
    "pulses_per_cell": ("pulses per cell", ".0f"),
    "gain": ("transfer gain", ".3f"),
    "undelivered": ("not delivered", ".1%"),
}


def metrics_table(
    heading: str, rows: Mapping[str, Mapping[str, float]], *left_out: str, right: bool = False
) -> Table:
    """One row per name, and a column for each metric that any row has.

    Args:
        heading: Heading of the column of names.
        rows: The metrics of each name.
        left_out: Metrics that are not shown.
        right: Whether the names are numbers, aligned right.
    """
    names = [
        name
        for name in _COLUMNS
        if name not in left_out and any(name in metrics for metrics in rows.values())
    ]
    table = Table()
    table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for name in names:
        table.add_column(_COLUMNS[name][0], justify="right")
    for row, metrics in rows.items():
        cells = (
            format(metrics[name], _COLUMNS[name][1]) if name in metrics else "-" for name in names
        )
        table.add_row(row, *cells)
    return table


def progress_bar() -> Progress:
    """A progress bar with counts, the time left and a status text."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),  # leaves room for the text in 80 columns
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
    )


def train_with_bar(
    run: Run, progress: Progress, name: str, trackers: Sequence[Tracker] = ()
) -> None:
    """Trains a `Run` to its end and shows its progress.

    Trackers get all records of the run, those of epochs before a resume too.
    """
    task = progress.add_task(name, total=run.passes, completed=run.passes_made, status="")

    def tell(metrics: Metrics) -> None:
        status = f"loss {metrics['loss']:.3f}, accuracy {metrics['accuracy']:.1%}"
        progress.update(task, status=status)
        for tracker in trackers:
            tracker.epoch(run.records[-1])

    described, *epochs = run.record_lines()
    for tracker in trackers:
        tracker.begin(described)
        for record in epochs:
            tracker.epoch(record)
    failed = True
    try:
        run.train(on_batch=lambda _: progress.advance(task), on_epoch=tell)
        failed = False
    finally:
        for tracker in trackers:
            tracker.end(failed=failed)
