"""`pulsora fit`: a device from measured pulses."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pulsora import devices
from pulsora._internal.checks import require_file, require_picture
from pulsora.cli.progress import console
from pulsora.fit import device as fitted

__all__ = ["fit"]


def fit(
    path: Annotated[
        Path,
        typer.Argument(
            help="A CSV file: pulse, direction, conductance or weight, "
            "and cell and cycle if several."
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(help="A PNG of the fit.", show_default="none")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="A file for the device, in TOML or JSON: for devices.load() and other commands.",
            show_default="none",
        ),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Models to fit, e.g. SoftBounds,ExpStep.", show_default="all")
    ] = None,
    span: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Lowest and highest reading of the mean cell.", show_default="those in the file"
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of a file without their names: up,down is a trace of each.",
            show_default="in line 1",
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of the columns up and down: conductance or weight.")
    ] = "conductance",
) -> None:
    """Fit device models to measured pulses, and choose the best by held-out likelihood."""
    require_picture("--plot", plot)
    require_file("--save", save)
    if save is not None and save.suffix not in {".toml", ".json"}:
        raise ValueError(f"--save = '{save}' must end in .toml or .json")
    names = None if models is None else [name.strip() for name in models.split(",")]
    listed = None if columns is None else columns.split(",")
    with console.status("fitting; one core takes seconds for each model and thousand pulses"):
        made, report = fitted(path, span=span, models=names, columns=listed, unit=unit)
    for line in report.data():
        console.print(line, highlight=False)
    table = Table(box=None)
    table.add_column("model")
    for column in report.columns[1:-1]:
        table.add_column(column, justify="right")
    table.add_column("")
    for row in report.rows():
        table.add_row(*row)
    console.print(table)
    console.print(report.legend(), highlight=False)
    parameters = Table(show_header=False, box=None)
    for name, value in report.best.parameters.items():
        parameters.add_row(name, str(value))
    console.print(report.best.model)
    console.print(parameters)
    for note in report.notes:
        console.print(f"note: {note}", highlight=False)
    if plot is not None:
        report.plot().savefig(plot, dpi=150)
        console.print(f"written: {plot}", highlight=False)
    if save is not None:
        devices.save(made, save)
        console.print(f"written: {save}", highlight=False)
