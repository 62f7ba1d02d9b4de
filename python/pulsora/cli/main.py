"""Command line: the commands of `pulsora`, in the order of its help page."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table

import pulsora
from pulsora import _core, devices, noise_models, presets
from pulsora._internal.checks import require_at_least, require_folder
from pulsora._internal.threads import chosen_threads
from pulsora.cli.bench import bench
from pulsora.cli.errors import Commands, OneLineErrors
from pulsora.cli.evaluate import evaluate
from pulsora.cli.fit import fit
from pulsora.cli.forecast import forecast
from pulsora.cli.options import (
    Algorithm,
    Compensation,
    ConfigFile,
    LearningRate,
    Modifier,
    ModifierStd,
    NoiseModel,
    Preset,
    Rank,
    Retention,
    RetentionCompensation,
    RetentionFast,
    Seed,
    Threads,
    TransferEvery,
    experiment_of,
    setting,
    setting_of_model,
    threads_of,
)
from pulsora.cli.pictures import plot_device, plot_drift
from pulsora.cli.progress import console, metrics_table, progress_bar, train_with_bar
from pulsora.cli.report import report
from pulsora.cli.selftest import selftest
from pulsora.cli.sweep import sweep
from pulsora.tile import Tile
from pulsora.trackers.writers import NAMES as TRACKERS
from pulsora.trackers.writers import trackers_of
from pulsora.training.data import load, require_batch
from pulsora.training.experiment import ALGORITHMS, MODELS, require_beginning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.trackers.writers import Tracker
    from pulsora.training.run import Run

app = typer.Typer(
    cls=Commands,
    help="Training neural networks on simulated analog crossbar arrays.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"pulsora {pulsora.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def train(
    data: Annotated[
        str | None,
        setting(
            "data",
            "'digits', a folder with the IDX files of a data set, or (for lstm and transformer) a "
            "text file.",
        ),
    ] = None,
    model: Annotated[str | None, setting("model", f"One of {', '.join(MODELS)}.")] = None,
    hidden: Annotated[
        str | None,
        setting_of_model("hidden", "Sizes of hidden layers, e.g. 256,128; for these models."),
    ] = None,
    epochs: Annotated[int | None, setting("epochs", "Passes over the training set.")] = None,
    batch: Annotated[
        int | None, setting_of_model("batch", "Images, or pieces of text, per mini-batch.")
    ] = None,
    lr: Annotated[float | None, setting_of_model("lr", "Learning rate.")] = None,
    device_preset: Preset = None,
    algorithm: Algorithm = None,
    rank: Rank = None,
    transfer_every: TransferEvery = None,
    hwa: Annotated[
        bool,
        typer.Option(
            "--hwa",
            help="Hardware-aware training, for arrays that are programmed once: --algorithm hwa.",
            show_default="off",
        ),
    ] = False,
    noise_model: NoiseModel = None,
    modifier: Modifier = None,
    modifier_std: ModifierStd = None,
    compensation: Compensation = None,
    retention: Retention = None,
    retention_fast: RetentionFast = None,
    retention_compensation: RetentionCompensation = None,
    seed: Seed = None,
    amp: Annotated[
        bool | None,
        typer.Option(
            "--amp/--no-amp",
            help="Digital layers in bfloat16, by torch's autocast; tiles stay in single precision.",
            show_default="no-amp",
        ),
    ] = None,
    hybrid: Annotated[
        float | None,
        setting("hybrid", "Share of backward passes replaced by predicted steps, such as 0.3."),
    ] = None,
    config: ConfigFile = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for metrics.json, records.jsonl, checkpoint.pt and training.png."
        ),
    ] = Path("runs/train"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out.", show_default="off")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out.", show_default="off")
    ] = False,
    track: Annotated[
        str | None,
        typer.Option(
            help=f"Trackers, with commas between: {', '.join(TRACKERS)}.", show_default="none"
        ),
    ] = None,
    threads: Threads = None,
    device: Annotated[
        str, typer.Option(help="Where to train: cpu, cuda or cuda:<number>.")
    ] = "cpu",
) -> None:
    """Train a network on images or text, all its layers analog but the last."""
    if hwa and algorithm not in {None, "hwa"}:
        raise ValueError(f"--hwa and --algorithm {algorithm} are two algorithms; choose one")
    experiment = experiment_of(
        config,
        data=data,
        model=model,
        hidden=hidden,
        epochs=epochs,
        batch=batch,
        lr=lr,
        device_preset=device_preset,
        algorithm="hwa" if hwa else algorithm,
        rank=rank,
        transfer_every=transfer_every,
        noise_model=noise_model,
        modifier=modifier,
        modifier_std=modifier_std,
        compensation=compensation,
        retention=retention,
        retention_fast=retention_fast,
        retention_compensation=retention_compensation,
        seed=seed,
        amp=amp,
        hybrid=hybrid,
    )
    require_beginning(out, resume=resume, overwrite=overwrite)
    _core.require_place(device, chosen_threads(threads))
    trackers = [] if track is None else trackers_of(track.split(","), out)
    dataset = load(experiment.data)
    require_batch(dataset, experiment.batch)
    from pulsora.training.run import Run  # noqa: PLC0415 - torch takes seconds, so checks are first

    run = Run(
        experiment,
        out,
        resume=resume,
        overwrite=overwrite,
        threads=threads_of(threads),
        device=device,
        data=dataset,
    )
    try:
        _train_and_show(run, out, trackers)
    except KeyboardInterrupt:
        done = run.saved
        is_over = done == len(run.history) and run.passes_made == run.passes
        saved = f"epoch {done} is saved in {out}/checkpoint.pt"
        if is_over:
            told = f"stopped after the last epoch; {saved}"
        elif done:
            told = f"stopped in epoch {done + 1}; go on after epoch {done} by --resume ({saved})"
        else:
            told = "stopped in epoch 1; nothing was saved"
        raise KeyboardInterrupt(told) from None


def _train_and_show(run: "Run", out: Path, trackers: "Sequence[Tracker]") -> None:
    """Trains what is left of a run, shows its metrics and draws them."""
    if run.passes_made == run.passes:
        made = f"{out} already has {len(run.history)} epochs"
        further = "its length was planned" if run.experiment.hybrid else "raise --epochs to go on"
        console.print(f"{made}; {further}", highlight=False)
    else:
        with progress_bar() as progress:
            train_with_bar(run, progress, run.experiment.name, trackers)
    from pulsora.plot import plot_training  # noqa: PLC0415 - matplotlib takes a second

    plot_training({run.experiment.name: run.history}).savefig(out / "training.png", dpi=150)
    rows = {f"{metrics['epoch']:.0f}": metrics for metrics in run.history}
    console.print(metrics_table("epoch", rows, right=True))
    if (report := run.report()) is not None:
        console.print(str(report), highlight=False)
    console.print(
        f"written: {out}/metrics.json, records.jsonl, checkpoint.pt, training.png", highlight=False
    )


def explain(
    outputs: Annotated[int, typer.Argument(help="Rows of the tile.")],
    inputs: Annotated[int, typer.Argument(help="Columns of the tile.")],
    lr: LearningRate = None,
    batch: Annotated[int | None, setting("batch", "Samples of a mini-batch.")] = None,
    device_preset: Preset = None,
    algorithm: Algorithm = None,
    rank: Rank = None,
    transfer_every: TransferEvery = None,
    seed: Seed = None,
    config: ConfigFile = None,
) -> None:
    """Show the pulse-train lengths, scales and limits that follow from a configuration.

    They are computed for one mini-batch of normal inputs with standard deviation 1 and normal
    errors with standard deviation 0.01 / batch.
    """
    experiment = experiment_of(
        config,
        lr=lr,
        batch=batch,
        device_preset=device_preset,
        algorithm=algorithm,
        rank=rank,
        transfer_every=transfer_every,
        seed=seed,
    )
    tiles = experiment.tile_config()
    if tiles is None:
        others = " or ".join(name for name in ALGORITHMS if name != experiment.algorithm)
        raise ValueError(f"algorithm = '{experiment.algorithm}' has no tiles; choose {others}")
    tile = Tile(outputs, inputs, tiles, seed=experiment.seed)
    rng = np.random.default_rng(experiment.seed)
    x = rng.standard_normal((experiment.batch, inputs)).astype(np.float32)
    d = (
        rng.standard_normal((experiment.batch, outputs)).astype(np.float32)
        * 0.01
        / experiment.batch
    )
    console.print(
        f"tile [{outputs}, {inputs}] of {tiles.summary()}, batch {experiment.batch}, "
        f"lr {experiment.lr}",
        highlight=False,
        markup=False,
    )
    console.print(str(tile.explain(x, d, experiment.lr)), highlight=False, markup=False)


def compile_model(
    source: Annotated[Path, typer.Argument(help="The header of a device model.")],
    name: Annotated[
        str | None, typer.Option(help="Its struct.", show_default="the only one named")
    ] = None,
    isa: Annotated[
        str | None,
        typer.Option(
            help="Instruction set: V2, V3, V4 or V4Popcnt.", show_default="this machine's"
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(help="Architecture of GPUs, such as sm_90.", show_default="no GPU"),
    ] = None,
) -> None:
    """Compile a device model ahead, so that processes without a compiler can use it."""
    for written in devices.compile_ahead(source, name, isa=isa, arch=arch):
        console.print(f"written: {written}", highlight=False, soft_wrap=True)


def info() -> None:
    """Show the version, build features and available devices."""
    table = Table(show_header=False, box=None)
    table.add_row("version", pulsora.__version__)
    table.add_row("CUDA devices", str(_core.cuda_device_count()))
    table.add_row("instruction sets", ", ".join(_core.instruction_sets()))
    table.add_row("device models", ", ".join(devices.MODELS))
    table.add_row("device presets", ", ".join(presets.names()))
    table.add_row("noise models", ", ".join(noise_models.MODELS))
    console.print(table)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "runs/demo"
    ),
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 20,
    threads: Annotated[
        int,
        typer.Option(help="CPU threads of tiles and of torch; this network gains nothing by more."),
    ] = 1,
) -> None:
    """Train on handwritten digits: a low-rank adapter, full-rank pulses, floating point."""
    require_at_least("epochs", epochs, 1)
    require_folder("--out", out)
    _core.require_place("cpu", threads)
    from pulsora.cli.demo import run_demo  # noqa: PLC0415 - needs torch

    run_demo(out, epochs, threads_of(threads))


# In the order in which a newcomer needs them, kept by `pulsora --help`.
_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "report": report,
    "sweep": sweep,
    "evaluate": evaluate,
    "explain": explain,
    "plot-device": plot_device,
    "plot-drift": plot_drift,
    "fit": fit,
    "compile": compile_model,
    "forecast": forecast,
    "info": info,
    "bench": bench,
    "selftest": selftest,
}
for _name, _command in _COMMANDS.items():
    # Lines of a paragraph are joined, so that a help page breaks them where the terminal ends.
    _paragraphs = inspect.cleandoc(_command.__doc__ or "").split("\n\n")
    _help = "\n\n".join(" ".join(_paragraph.split()) for _paragraph in _paragraphs)
    app.command(_name, cls=OneLineErrors, help=_help)(_command)
