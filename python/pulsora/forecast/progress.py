"""Progress of a training, on one line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsora.forecast.plan import Plan

__all__ = ["bar", "status"]


@contextlib.contextmanager
def bar(total: int, *, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """A function that shows the progress of a training."""
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=16), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, status: progress.update(task, completed=done, description=status)


def status(plan: Plan, passes: int, step: int, losses: Sequence[float]) -> str:
    """Phase, saved passes and latest loss of a training after some passes."""
    text = f"{plan.phase(passes)}, {step - passes} passes saved"
    return text + (f", {losses[-1]:.3g} loss" if losses else "")
