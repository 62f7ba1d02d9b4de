"""`pulsora bench`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement

from pulsora._internal.checks import require_at_least, require_file, require_picture, whole_numbers
from pulsora._internal.files import replace_file
from pulsora.bench import report
from pulsora.bench.cases import OPERATIONS, cases
from pulsora.bench.machine import Place, measure_ceilings
from pulsora.bench.measure import WrongResultError, run
from pulsora.cli.errors import errors
from pulsora.cli.options import Threads
from pulsora.cli.progress import console, progress_bar

__all__ = ["bench"]

_RANK, _TRANSFER_EVERY = 8, 10


def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:<number>.")] = "cpu",
    models: Annotated[
        str,
        typer.Option(
            help="Device presets, models or files of 'pulsora fit --save', with commas between."
        ),
    ] = "ConstantStep,SoftBounds",
    sizes: Annotated[str, typer.Option(help="Rows and columns of the arrays, e.g. 512,4096.")] = (
        "512"
    ),
    batch: Annotated[int, typer.Option(help="Samples of a mini-batch.")] = 64,
    operations: Annotated[
        str, typer.Option(help="Operations to measure, with commas between them.")
    ] = ",".join(OPERATIONS),
    lrtt: Annotated[bool, typer.Option(help="Measure tiles with an adapter as well.")] = True,
    rank: Annotated[
        int | None, typer.Option(help="Rank of the adapter.", show_default=str(_RANK))
    ] = None,
    transfer_every: Annotated[
        int | None,
        typer.Option(
            help="Mini-batches per transfer of the adapter, in steps; 0 is never. "
            "Whole cycles are timed; the library's default is 1000.",
            show_default=str(_TRANSFER_EVERY),
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 0.3,
    threads: Threads = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a roofline into this PNG.", show_default="none")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write everything to this file.", show_default="none"),
    ] = None,
) -> None:
    """Measure how fast tiles are, beside the limits of this machine.

    Every case is checked before it is timed. A case with a wrong result is left out, and the exit
    status is 1 then.
    """
    ranks, every = _adapters(lrtt, rank, transfer_every)
    if not seconds >= 0.0:
        raise ValueError(f"seconds must be at least 0 (got {seconds})")
    require_picture("--plot", plot)  # now, and not after minutes of measuring
    require_file("--json", json_file)
    chosen = cases(
        models=_names(models),
        sizes=whole_numbers("sizes", sizes),
        batch=batch,
        ranks=ranks,
        operations=_names(operations),
        transfer_every=every,
    )
    place = Place(device, threads)
    ceilings = measure_ceilings(place)
    results, wrong = [], []
    with progress_bar() as progress:
        task = progress.add_task("bench", total=len(chosen), status="")
        for case in chosen:
            progress.update(task, status=f"{case.tile}, {case.size}, {case.operation}")
            try:
                results.append(run(case, place, seconds))
            except WrongResultError as error:
                wrong.append(str(error))
            progress.advance(task)
    ceilings |= measure_ceilings(place)
    console.print(report.headline(place, ceilings, batch), highlight=False)
    table = report.table(results, place, ceilings)
    # Numbers and names are never cut off, on however narrow a terminal.
    width = Measurement.get(console, console.options.update(width=1000), table).minimum
    Console(width=max(width, console.width)).print(table)
    console.print(report.legend(place))
    if remark := report.remark(place):
        console.print(remark, style="yellow", highlight=False)
    if plot is not None and results:
        from pulsora.plot import plot_roofline  # noqa: PLC0415 - matplotlib takes a second

        plot_roofline(results, ceilings, place.name).savefig(plot, dpi=150)
        console.print(f"written: {plot}", highlight=False)
    if json_file is not None:
        replace_file(json_file, report.to_json(results, place, ceilings).encode())
        console.print(f"written: {json_file}", highlight=False)
    for message in wrong:
        errors.print(f"wrong: {message}", style="bold red", markup=False, highlight=False)
    if wrong:
        raise typer.Exit(1)


def _adapters(
    wanted: bool, rank: int | None, transfer_every: int | None
) -> tuple[tuple[int, ...], int]:
    """Ranks to measure, 0 for a single array, and the mini-batches per transfer."""
    for name, value in (("rank", rank), ("transfer_every", transfer_every)):
        if not wanted and value is not None:
            raise ValueError(
                f"{name} is for adapters, which --no-lrtt leaves out; leave {name} out"
            )
    rank = _RANK if rank is None else rank
    require_at_least("rank", rank, 1)
    return (0, rank) if wanted else (0,), (
        _TRANSFER_EVERY if transfer_every is None else transfer_every
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
