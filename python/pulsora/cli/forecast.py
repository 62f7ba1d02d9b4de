"""`pulsora forecast`: continues the loss curve of a run."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.table import Table

from pulsora._internal.checks import reading, require_at_least, require_picture, require_positive
from pulsora.cli.progress import console
from pulsora.forecast.loss_curve.forecast import LEAST, LossForecast, forecast_loss

__all__ = ["forecast"]


def forecast(
    metrics: Annotated[Path, typer.Argument(help="The metrics.json of a run of 'pulsora train'.")],
    ahead: Annotated[
        int | None,
        typer.Option(help="Epochs to look ahead.", show_default="as many as there are"),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Tell how long it takes to this training loss.", show_default="none"),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Probability with which losses are to lie in the intervals.")
    ] = 0.9,
    residual: Annotated[
        str | None,
        typer.Option(
            help="'gru': a trained ensemble predicts the residual of the law.",
            show_default="the law alone",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The PNG.", show_default="forecast.png beside METRICS")
    ] = None,
) -> None:
    """Continue the training loss of a run as a power law, with intervals."""
    picture = metrics.with_name("forecast.png") if out is None else out
    require_picture("--out", picture)
    if ahead is not None:
        require_at_least("ahead", ahead, 1)
    if target is not None:
        require_positive("target", target)
    epochs = _epochs(metrics)
    far = len(epochs) if ahead is None else ahead
    rates = None if residual is None else [1.0] * (len(epochs) + far)  # a run keeps its rate
    made = forecast_loss(
        [epoch["loss"] for epoch in epochs],
        far,
        level=level,
        residual=cast("Literal['gru'] | None", residual),
        rates=rates,
    )
    console.print(_table(made))
    console.print(str(made), highlight=False)
    if target is not None:
        for line in _reach(made, target, _pulses_per_epoch(epochs)):
            console.print(line, highlight=False)
    from pulsora.plot import plot_forecast  # noqa: PLC0415 - matplotlib takes a second

    plot_forecast(made, target).savefig(picture, dpi=150)
    console.print(f"written: {picture}", highlight=False)


def _epochs(path: Path) -> list[dict[str, Any]]:
    """The epochs of a metrics file; ValueError, naming the file, if it is none."""
    with reading("metrics", path, "name the metrics.json of a run of 'pulsora train'"):
        content = path.read_bytes()
    try:
        epochs = [dict(one, loss=float(one["loss"])) for one in json.loads(content)["epochs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no metrics.json of 'pulsora train' ({type(error).__name__}: {error})"
        ) from None
    if len(epochs) < LEAST:
        raise ValueError(
            f"{path} has {len(epochs)} of the {LEAST} epochs that a forecast needs; train on by "
            "--resume with more --epochs"
        )
    return epochs


def _table(made: LossForecast) -> Table:
    table = Table()
    for heading in ("epoch", "expected loss", "from", "to"):
        table.add_column(heading, justify="right")
    count = len(made.steps)
    shown = sorted({max(round(count * share), 1) for share in (0.0, 0.25, 0.5, 0.75, 1.0)})
    for place in (number - 1 for number in shown):
        table.add_row(
            str(made.steps[place]),
            *(f"{values[place]:.4g}" for values in (made.expected, made.lower, made.upper)),
        )
    return table


def _pulses_per_epoch(epochs: list[dict[str, Any]]) -> float | None:
    """Pulses of an epoch, the mean over the later half; None where none were counted."""
    late = epochs[len(epochs) // 2 - 1 :]
    if not all("pulses" in epoch for epoch in late):
        return None
    return float((late[-1]["pulses"] - late[0]["pulses"]) / (len(late) - 1))


def _reach(made: LossForecast, target: float, pulses: float | None) -> list[str]:
    reach = made.reach(target)
    if reach.expected == 0.0:
        return [f"loss {target:g} is reached already"]
    if math.isinf(reach.expected):
        return [f"loss {target:g} is not expected to be reached"]
    latest = "never" if math.isinf(reach.latest) else f"{reach.latest:.0f}"
    text = f"loss {target:g} is expected in {reach.expected:.0f} more epochs"
    lines = [f"{text} ({reach.earliest:.0f} at the earliest, {latest} at the latest)"]
    if pulses is not None:
        lines.append(
            f"that takes {reach.expected * pulses:.3g} more pulses, {pulses:.3g} per epoch"
        )
    return lines
