"""`pulsora evaluate`: what is left of a trained network on arrays that drift."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsora import _core, presets
from pulsora._internal.checks import require_at_least, require_folder
from pulsora._internal.threads import chosen_threads
from pulsora._internal.times import seconds
from pulsora.cli.options import Threads, threads_of
from pulsora.cli.progress import console, progress_bar
from pulsora.training.data import load

if TYPE_CHECKING:
    from pulsora.config import TileConfig
    from pulsora.inference import InferenceReport

__all__ = ["evaluate"]

_BATCH = 500


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder of 'pulsora train'.")],
    noise_model: Annotated[
        str | None,
        typer.Option(
            help="A noise model, see 'pulsora info', or a file with the table of one.",
            show_default="that of the run, else PCMLike",
        ),
    ] = None,
    compensation: Annotated[
        str | None,
        typer.Option(
            help="Drift compensation: none, global, per_output or exact_reference.",
            show_default="that of the run, else global",
        ),
    ] = None,
    arrays: Annotated[
        bool,
        typer.Option(
            "--arrays",
            help="Read the trained arrays of the run themselves, which drift by its --retention.",
            show_default="off",
        ),
    ] = False,
    times: Annotated[
        str | None,
        typer.Option(
            help="Times since programming, with commas between, such as '1 s,30 days'.",
            show_default="1 s, 1 h, 1 day, 1 month, 1 year, as far as the model knows",
        ),
    ] = None,
    programmings: Annotated[int, typer.Option(help="Programmings of a chip.")] = 5,
    chips: Annotated[
        int, typer.Option(help="Chips, each with stuck devices and converters of its own.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for evaluation.json and evaluation.png.", show_default="RUN"),
    ] = None,
    threads: Threads = None,
    device: Annotated[
        str, typer.Option(help="Where to evaluate: cpu, cuda or cuda:<number>.")
    ] = "cpu",
) -> None:
    """Evaluate a trained network on arrays that are programmed once and drift.

    The weights of a run, however it was trained, are programmed into arrays of a noise model, all
    layers but the output layer. Shown is the accuracy on the test set over the time since
    programming: mean, deviation, least and most of all programmings. With --arrays, the arrays that
    pulses have trained are read at these times after their last pulse, and the programmings are
    readings of them.
    """
    given = [] if times is None else [seconds(time) for time in times.split(",")]
    for name, value in (("programmings", programmings), ("chips", chips)):
        require_at_least(name, value, 1)
    changes: dict[str, Any] = {}
    if noise_model is not None:
        changes["noise_model"] = presets.noise_model(noise_model)
    if compensation is not None:
        changes["compensation"] = compensation
    if arrays:
        _require_no_programming(changes, chips)
    _core.require_place(device, chosen_threads(threads))
    import torch  # noqa: PLC0415 - torch takes seconds, so checks are first

    from pulsora.inference import evaluate as evaluated  # noqa: PLC0415
    from pulsora.inference.evaluation import YEAR  # noqa: PLC0415
    from pulsora.training.run import accuracy  # noqa: PLC0415
    from pulsora.training.saved import (  # noqa: PLC0415
        digital_model,
        inference_config,
        programmable_model,
        saved_experiment,
        trained_model,
    )

    experiment = saved_experiment(run)
    config = inference_config(experiment, **changes)
    models = _retentions(experiment.tile_config()) if arrays else [config.noise_model]
    last = min(_core.last_time(model.to_dict()) for model in models)
    after = given or [time for time in map(seconds, YEAR) if time <= last]
    folder = run if out is None else out
    require_folder("--out", folder)
    count = threads_of(threads)
    data = load(experiment.data)
    digital = digital_model(run, experiment, data, threads=count)
    if arrays:
        model = trained_model(run, experiment, data, threads=count).to(device)
    else:
        model = programmable_model(
            digital, config, data, seed=experiment.seed, threads=count, device=device
        )
    x, y = (torch.from_numpy(array) for array in (data.test_x, data.test_y))
    plain = accuracy(digital, x, y)
    batches = [
        (part.to(device), wanted.to(device))
        for part, wanted in zip(torch.split(x, _BATCH), torch.split(y, _BATCH), strict=True)
    ]
    with progress_bar() as progress:
        task = progress.add_task("evaluations", total=None, status="")
        report = evaluated(
            model, batches, times=after, programmings=programmings, chips=chips,
            progress=lambda done, of: progress.update(task, completed=done, total=of),
        )  # fmt: skip
    _show(report, folder, f"{experiment.name}, {', '.join(model.model for model in models)}")
    console.print(f"floating point: {plain:.4f}", highlight=False)
    console.print(f"written: {folder}/evaluation.json, evaluation.png", highlight=False)


def _require_no_programming(changes: dict[str, Any], chips: int) -> None:
    """Raises ValueError for options that say something of arrays that are programmed."""
    given = [f"--{name.replace('_', '-')}" for name in changes] + ["--chips"] * (chips > 1)
    if given:
        raise ValueError(
            f"{', '.join(given)}: --arrays reads the trained arrays of the run, which are not "
            f"programmed; leave out either --arrays or {', '.join(given)}"
        )


def _retentions(config: "TileConfig | None") -> list[Any]:
    """The noise models by which the arrays of a run drift; ValueError if there are none."""
    names = ("retention", "retention_fast")
    found = [getattr(config, name) for name in names if getattr(config, name, None) is not None]
    if not found:
        raise ValueError(
            "--arrays: the arrays of the run keep their weights; train it with --retention, such "
            "as 'pulsora train --algorithm pulsed --retention PCMLike', or leave out --arrays"
        )
    return found


def _show(report: "InferenceReport", folder: Path, name: str) -> None:
    """Shows the table of a report, and writes the report and its picture."""
    from pulsora.inference import plot  # noqa: PLC0415 - needs torch

    console.print(str(report), highlight=False, markup=False)
    report.save(folder / "evaluation.json")
    plot({name: report}, folder / "evaluation.png")
