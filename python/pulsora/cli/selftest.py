"""`pulsora selftest`."""

from pathlib import Path
from typing import Annotated

import typer

from pulsora._internal.checks import require_file
from pulsora.cli.progress import console, progress_bar
from pulsora.verification import selftest as run_selftest

__all__ = ["selftest"]


def selftest(
    out: Annotated[Path, typer.Option(help="JSON file to attach to a bug report.")] = Path(
        "pulsora-selftest.json"
    ),
    speed: Annotated[
        bool, typer.Option(help="Measure speed, beside the times of known machines.")
    ] = True,
) -> None:
    """Test this installation on this machine.

    It compares the results of all device models, compounds and noise models with golden values, and
    takes about a minute. The exit status is 1 if anything differs.
    """
    require_file("--out", out)
    with progress_bar() as progress:
        task = progress.add_task("selftest", total=None, status="")
        result = run_selftest(
            speeds=speed, progress=lambda name: progress.update(task, status=name)
        )
    result.save(out)
    console.print(str(result), highlight=False, markup=False, soft_wrap=True)
    console.print(f"written: {out}", highlight=False)
    if not result.ok:
        raise typer.Exit(1)
