"""What the commands write to, and how they show how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from pulsora.training.run import Run

__all__ = ["console", "progress_bar", "train_with_bar"]

console = Console()


def progress_bar() -> Progress:
    """A bar with counts, the time left, and a text of the task's own."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
    )


def train_with_bar(run: Run, progress: Progress, name: str) -> None:
    """Trains a `Run` to its end and shows how far it is."""
    total = run.experiment.epochs * run.batches
    done = len(run.history) * run.batches
    task = progress.add_task(name, total=total, completed=done, status="")
    run.train(
        on_batch=lambda _: progress.advance(task),
        on_epoch=lambda m: progress.update(
            task, status=f"loss {m['loss']:.3f}, accuracy {m['accuracy']:.1%}"
        ),
    )
