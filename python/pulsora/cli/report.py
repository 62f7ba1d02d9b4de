"""`pulsora report`: one HTML page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from pulsora._internal.checks import require_file
from pulsora._internal.files import replace_file
from pulsora.accounting import Costs
from pulsora.cli.progress import console
from pulsora.report.runs import load

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of 'pulsora train', or folders of such folders ('pulsora demo', 'pulsora "
            "sweep').",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page.", show_default="report.html in RUN; of several, in this folder"
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="Costs of events (TOML): the ledger then has energy, time and area."),
    ] = None,
) -> None:
    """Write an HTML page about a run, or about several side by side.

    The page holds its pictures and needs no network. It has the curves, pulses, cells at a bound,
    transfers, distributions of weights, a ledger of what hardware would do, and the settings that
    differ.
    """
    shown = load(runs)
    prices = None if costs is None else Costs.load(costs)
    path = (runs[0] if len(runs) == 1 else Path()) / "report.html" if out is None else out
    require_file("--out", path)
    from pulsora.report.page import page  # noqa: PLC0415 - matplotlib takes a second

    replace_file(path, page(shown, prices).encode())
    console.print(f"written: {path}", highlight=False, soft_wrap=True)
