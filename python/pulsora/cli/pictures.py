"""`pulsora plot-device` and `pulsora plot-drift`: pictures of devices and of memories."""

from pathlib import Path
from typing import Annotated

import typer

from pulsora import presets
from pulsora._internal.checks import numbers, require_at_least, require_picture
from pulsora.cli.progress import console
from pulsora.drift_curves import drift_curves

__all__ = ["plot_device", "plot_drift"]


def plot_device(
    name: Annotated[
        str,
        typer.Argument(
            help="A device preset or model, see 'pulsora info', or a file of 'pulsora fit --save'."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The PNG.", show_default="NAME.png, in this folder")
    ] = None,
    cells: Annotated[int, typer.Option(help="Number of cells.")] = 64,
    pulses: Annotated[
        int | None, typer.Option(help="Pulses per direction.", show_default="most of the range")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of cells and noise.")] = 1,
) -> None:
    """Draw how a device responds to pulses up and down."""
    device = presets.device(name)
    title = Path(name).stem  # of a preset its name
    path = Path(f"{title}.png") if out is None else out
    require_picture("--out", path)
    from pulsora.plot import plot_device as figure_of  # noqa: PLC0415 - matplotlib takes a second

    figure = figure_of(device, title=title, cells=cells, pulses=pulses, seed=seed)
    figure.savefig(path, dpi=150)
    console.print(f"written: {path}", highlight=False)


def plot_drift(
    name: Annotated[
        str,
        typer.Argument(
            help="A noise model, see 'pulsora info', RRAMMilo, SONOS, or a TOML or JSON file."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The PNG.", show_default="NAME.png, in this folder")
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(
            help="Times since programming, with commas between, such as '1 s,1 day'.",
            show_default="1 s to 1 year, as far as the model knows",
        ),
    ] = None,
    levels: Annotated[
        str, typer.Option(help="Targets, as shares of the range of conductances.")
    ] = "0.1,0.25,0.5,1",
    cells: Annotated[int, typer.Option(help="Devices of each target.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of devices and noise.")] = 1,
) -> None:
    """Draw how programmed conductances of a noise model drift, and show them as a table."""
    model = presets.noise_model(name)
    title = Path(name).stem  # of a model its name
    path = Path(f"{title}.png") if out is None else out
    require_picture("--out", path)
    require_at_least("cells", cells, 2)
    wanted = None if times is None else times.split(",")
    from pulsora.plot import plot_drift as figure_of  # noqa: PLC0415 - matplotlib takes a second

    curves = drift_curves(
        model, times=wanted, levels=numbers("levels", levels), devices=cells, seed=seed
    )
    console.print(str(curves), highlight=False, markup=False, soft_wrap=True)
    figure_of(curves, title=title).savefig(path, dpi=150)
    console.print(f"written: {path}", highlight=False)
