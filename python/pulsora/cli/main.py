"""The command line: `pulsora train | plot-device | explain | bench | info | demo`."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import numpy as np
import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

import pulsora
from pulsora import _core, devices, presets
from pulsora.bench import report
from pulsora.bench.cases import OPERATIONS, cases
from pulsora.bench.machine import Place, measure_ceilings
from pulsora.bench.measure import WrongResultError, run
from pulsora.cli.progress import console, progress_bar, train_with_bar
from pulsora.plot import plot_device as device_figure
from pulsora.plot import plot_roofline, plot_training
from pulsora.tile import Tile
from pulsora.training.experiment import ALGORITHMS, Experiment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.config import TileConfig

errors = Console(stderr=True, soft_wrap=True)


_P = ParamSpec("_P")


def one_line_errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """Shows what a user can put right as one line; everything else is a traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **options: _P.kwargs) -> None:
        try:
            command(*args, **options)
        except (
            ValueError,
            TypeError,
            OSError,
            ImportError,
            _core.DeviceError,
            MemoryError,
        ) as error:
            line = " ".join(str(error).split())
            errors.print(f"error: {line}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error

    return run


app = typer.Typer(
    help="Training neural networks on simulated analog crossbar arrays.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

# Options of several commands. None means: not given, so the configuration file or the default.
ConfigFile = Annotated[Path | None, typer.Option(help="Settings as a TOML or JSON file.")]
Algorithm = Annotated[str | None, typer.Option(help=f"One of {', '.join(ALGORITHMS)}.")]
Preset = Annotated[str | None, typer.Option(help="Name of a device preset, see 'pulsora info'.")]
Rank = Annotated[int | None, typer.Option(help="Rank of the adapter.")]
TransferEvery = Annotated[int | None, typer.Option(help="Samples per transfer of the adapter.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; by default all there are.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate.")]


@app.command()
@one_line_errors
def train(
    data: Annotated[
        str | None, typer.Option(help="'digits', or a folder with the IDX files of a data set.")
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Sizes of hidden layers, e.g. 256,128.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per mini-batch.")] = None,
    lr: LearningRate = None,
    device_preset: Preset = None,
    algorithm: Algorithm = None,
    rank: Rank = None,
    transfer_every: TransferEvery = None,
    seed: Seed = None,
    config: ConfigFile = None,
    out: Annotated[
        Path, typer.Option(help="Folder for metrics.json, checkpoint.pt and training.png.")
    ] = Path("runs/train"),
    resume: Annotated[bool, typer.Option(help="Continue from the checkpoint in --out.")] = False,
    threads: Threads = None,
) -> None:
    """Train a network with analog hidden layers."""
    from pulsora.training.run import Run  # noqa: PLC0415 - needs torch

    experiment = _experiment(
        config,
        data=data,
        hidden=None if hidden is None else _sizes(hidden, "hidden"),
        epochs=epochs,
        batch=batch,
        lr=lr,
        device_preset=device_preset,
        algorithm=algorithm,
        rank=rank,
        transfer_every=transfer_every,
        seed=seed,
    )
    run = Run(experiment, out, resume=resume, threads=threads)
    with progress_bar() as progress:
        train_with_bar(run, progress, experiment.algorithm)
    if run.history:
        plot_training({experiment.algorithm: run.history}).savefig(out / "training.png", dpi=150)
        console.print(_history_table(run.history))
    console.print(f"written: {out}/metrics.json, checkpoint.pt, training.png", highlight=False)


@app.command()
@one_line_errors
def plot_device(
    name: Annotated[str, typer.Argument(help="A device preset or model, see 'pulsora info'.")],
    out: Annotated[Path | None, typer.Option(help="The PNG; by default NAME.png.")] = None,
    cells: Annotated[int, typer.Option(help="Number of cells.")] = 64,
    pulses: Annotated[int | None, typer.Option(help="Pulses per direction.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of cells and noise.")] = 1,
) -> None:
    """Draw how a device responds to pulses up and down."""
    device = getattr(devices, name)() if name in devices.MODELS else presets.device(name)
    path = Path(f"{name}.png") if out is None else out
    figure = device_figure(device, title=name, cells=cells, pulses=pulses, seed=seed)
    figure.savefig(path, dpi=150)
    console.print(f"written: {path}", highlight=False)


@app.command()
@one_line_errors
def explain(
    outputs: Annotated[int, typer.Argument(help="Rows of the tile.")],
    inputs: Annotated[int, typer.Argument(help="Columns of the tile.")],
    lr: LearningRate = None,
    batch: Annotated[int | None, typer.Option(help="Samples of the example.")] = None,
    device_preset: Preset = None,
    algorithm: Algorithm = None,
    rank: Rank = None,
    transfer_every: TransferEvery = None,
    seed: Seed = None,
    config: ConfigFile = None,
) -> None:
    """Say which train lengths, scales and limits a configuration leads to.

    The example is normal inputs of deviation 1, and errors of deviation 0.1 / batch.
    """
    experiment = _experiment(
        config,
        lr=lr,
        batch=batch,
        device_preset=device_preset,
        algorithm=algorithm,
        rank=rank,
        transfer_every=transfer_every,
        seed=seed,
    )
    tile = Tile(outputs, inputs, _analog(experiment), seed=experiment.seed)
    rng = np.random.default_rng(experiment.seed)
    x = rng.standard_normal((experiment.batch, inputs)).astype(np.float32)
    d = rng.standard_normal((experiment.batch, outputs)).astype(np.float32) * 0.1 / experiment.batch
    console.print(f"tile [{outputs}, {inputs}], lr {experiment.lr}", highlight=False)
    console.print(str(tile.explain(x, d, experiment.lr)), highlight=False, markup=False)


def _require_folder(option: str, path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"{option} = '{path}': there is no folder '{path.parent}'; make it first")


@app.command()
@one_line_errors
def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:<number>.")] = "cpu",
    models: Annotated[
        str, typer.Option(help="Device models or presets, see 'pulsora info'.")
    ] = "ConstantStep,SoftBounds",
    sizes: Annotated[str, typer.Option(help="Rows and columns of the arrays, e.g. 512,4096.")] = (
        "512"
    ),
    batch: Annotated[int, typer.Option(help="Samples of a mini-batch.")] = 64,
    operations: Annotated[
        str | None, typer.Option(help="Some of forward,backward,update sparse,update dense,step.")
    ] = None,
    lrtt: Annotated[bool, typer.Option(help="Measure tiles with an adapter as well.")] = True,
    rank: Annotated[int, typer.Option(help="Rank of the adapter.")] = 8,
    transfer_every: Annotated[
        int, typer.Option(help="Mini-batches per transfer, in steps with an adapter.")
    ] = 10,
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 0.3,
    threads: Threads = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a roofline into this PNG.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file.")
    ] = None,
) -> None:
    """Measure how fast tiles are, beside what this machine could do.

    Every case is checked before it is timed. A case with a wrong result is left out, and the exit
    status is 1 then.
    """
    if lrtt and rank < 1:
        raise ValueError(f"rank = {rank}: choose a number from 1 up, or --no-lrtt")
    if not seconds >= 0.0:
        raise ValueError(f"seconds = {seconds}: choose a number from 0 up")
    _require_folder("plot", plot)  # now, and not after minutes of measuring
    _require_folder("json", json_file)
    chosen = cases(
        models=_names(models),
        sizes=_sizes(sizes, "sizes"),
        batch=batch,
        ranks=(0, rank) if lrtt else (0,),
        operations=OPERATIONS if operations is None else _names(operations),
        transfer_every=transfer_every,
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
    # Numbers are never cut off, on however narrow a terminal.
    width = Measurement.get(console, console.options.update(width=1000), table).maximum
    Console(width=max(width, console.width)).print(table)
    if remark := report.remark(place):
        console.print(remark, style="yellow", highlight=False)
    if plot is not None and results:
        plot_roofline(results, ceilings, place.name).savefig(plot, dpi=150)
        console.print(f"written: {plot}", highlight=False)
    if json_file is not None:
        json_file.write_text(report.to_json(results, place, ceilings))
        console.print(f"written: {json_file}", highlight=False)
    for message in wrong:
        errors.print(f"wrong: {message}", style="bold red", markup=False, highlight=False)
    if wrong:
        raise typer.Exit(1)


@app.command()
@one_line_errors
def info() -> None:
    """Show the version, what this build and machine can do, and the devices there are."""
    table = Table(show_header=False, box=None)
    table.add_row("version", pulsora.__version__)
    table.add_row("CUDA devices", str(_core.cuda_device_count()))
    table.add_row("instruction sets", ", ".join(_core.instruction_sets()))
    table.add_row("device models", ", ".join(devices.MODELS))
    table.add_row("device presets", ", ".join(presets.names()))
    console.print(table)


@app.command()
@one_line_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "runs/demo"
    ),
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 20,
    threads: Threads = 1,  # the network is too small to gain from more
) -> None:
    """Train on handwritten digits: a low-rank adapter, full-rank pulses, floating point."""
    from pulsora.cli.demo import run_demo  # noqa: PLC0415 - needs torch

    run_demo(out, epochs, threads)


def _experiment(file: Path | None, **given: Any) -> Experiment:
    settings = {} if file is None else _read_settings(file)
    return Experiment.from_dict(settings | {k: v for k, v in given.items() if v is not None})


def _read_settings(path: Path) -> dict[str, Any]:
    text = path.read_text()
    try:
        if path.suffix == ".toml":
            return dict(importlib.import_module("tomllib").loads(text))
        settings = json.loads(text)
    except ImportError as error:
        raise ValueError(f"{path}: TOML needs Python 3.11; write the settings as JSON") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: the file holds no table of settings")  # noqa: TRY004
    return settings


def _sizes(text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} = '{text}': give whole numbers, such as 256,128") from error


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _analog(experiment: Experiment) -> TileConfig:
    config = experiment.tile_config()
    if config is None:
        others = " or ".join(name for name in ALGORITHMS if name != experiment.algorithm)
        raise ValueError(f"algorithm = '{experiment.algorithm}' has no tiles; choose {others}")
    return config


def _history_table(history: list[dict[str, float]]) -> Table:
    names = list(history[-1])
    table = Table(*names)
    for row in history:
        table.add_row(*(f"{row[name]:.4g}" for name in names))
    return table
