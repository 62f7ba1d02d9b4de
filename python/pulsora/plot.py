"""Figures: a device's response to pulses, drift, training curves, the fidelity of transfers.

    pl.plot.plot_device(pl.devices.EcRam())

Every plot function returns a new matplotlib Figure. A notebook shows the figure at the end of a
cell; `figure.savefig("name.png")` saves it. No window is opened, and no state of pyplot is touched.
matplotlib is imported on first use of `pl.plot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from pulsora._internal.checks import require_at_least
from pulsora._internal.figures import COLORS, ShownFigure
from pulsora.config import SingleConfig, UpdateParameters
from pulsora.drift_curves import DriftCurves, draw_drift, drift_curves
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from pulsora.bench.machine import Ceilings
    from pulsora.bench.measure import Result
    from pulsora.devices import Device
    from pulsora.forecast.loss_curve.forecast import LossForecast
    from pulsora.noise_models import NoiseModel

__all__ = [
    "DriftCurves",
    "Response",
    "device_response",
    "draw_response",
    "drift_curves",
    "plot_accuracy",
    "plot_comparison",
    "plot_device",
    "plot_drift",
    "plot_forecast",
    "plot_roofline",
    "plot_training",
    "plot_transfer",
]

_MARKERS = ("o", "^", "D", "v", "P", "X")
_NEARLY = 0.95  # share of the range of weights that pulses cross by default
_ENOUGH = 1e15  # learning rate, the largest that there is
_MOST_RANGES = 20.0  # limit of pulses by default, in ranges of weights over dw_min


@dataclass(frozen=True)
class Response:
    """Weights of single cells under pulses up, then down.

    Attributes:
        pulses: Number of pulses so far, [points].
        weights: The weight of each cell after these pulses, [points, cells].
        turn: Number of pulses after which the direction changes.
        bounds: The lower and the upper bound of weights, means over the cells.
    """

    pulses: NDArray[np.int64]
    weights: NDArray[np.float32]
    turn: int
    bounds: tuple[float, float]

    def typical(self, count: int) -> NDArray[np.float32]:
        """Weights [points, count] of cells at evenly spaced quantiles of weights at the turn."""
        at_turn = self.weights[np.searchsorted(self.pulses, self.turn)]
        order = np.argsort(at_turn, kind="stable")
        places = (np.arange(count) + 0.5) / count * len(order)
        return self.weights[:, order[places.astype(int)]]


def device_response(
    device: Device, *, cells: int = 64, pulses: int | None = None, points: int = 100, seed: int = 1
) -> Response:
    """Sends pulses up and then as many down to cells that start at their lower bound.

    Args:
        device: A device model, such as `pulsora.devices.EcRam()`.
        cells: Number of cells, sampled with the device's spreads.
        pulses: Pulses per direction; by default as many as take the cells through 95 % of the range
            of weights, on the average and in the slower direction.
        points: Number of readings of the weights per direction.
        seed: Seed of the cells and of the cycle noise.

    Raises:
        ValueError: for a number below 1, or a seed below 0.
    """
    for name, value in (("cells", cells), ("points", points)):
        require_at_least(name, value, 1)
    # One slot with probability 1 on both lines is exactly one pulse per sample: probabilities end
    # at 1, which this learning rate asks for whatever the step of the device.
    one_pulse = UpdateParameters(
        desired_bl=1, fixed_bl=True, update_management=False, update_bl_management=False
    )
    tile = Tile(cells, 1, SingleConfig(device=device, update=one_pulse), seed=seed)
    if pulses is None:
        pulses = _pulses_across(tile, device.to_dict())
    require_at_least("pulses", pulses, 1)
    lowest = device.to_dict()["w_min"]
    tile.visible = np.full((cells, 1), lowest, np.float32)
    edges = np.unique(np.linspace(0, pulses, points + 1).round().astype(np.int64))
    seen = [tile.weights[:, 0].copy()]
    for direction in (1.0, -1.0):
        for batch in np.diff(edges):
            x = np.ones((batch, 1), np.float32)
            d = np.full((batch, cells), -direction, np.float32)  # descent: d < 0 drives up
            tile.update(x, d, lr=_ENOUGH)
            seen.append(tile.weights[:, 0].copy())
    limits = tile.describe_cells()
    bounds = float(limits["w_min"].mean()), float(limits["w_max"].mean())
    return Response(
        np.concatenate([edges, pulses + edges[1:]]), np.array(seen), int(pulses), bounds
    )


def _pulses_across(tile: Tile, numbers: Mapping[str, float]) -> int:
    """Pulses that cross most of the range of weights, by mean steps of cells along the way."""
    low, high = numbers["w_min"], numbers["w_max"]
    most = _MOST_RANGES * (high - low) / numbers["dw_min"]
    margin = (1.0 - _NEARLY) * (high - low)
    needed = []
    for name, start, end in (("step_up", low, high - margin), ("step_down", high, low + margin)):
        steps = []
        for weight in np.linspace(start, end, 50):
            tile.visible = np.full((tile.d_size, 1), weight, np.float32)
            steps.append(abs(float(tile.describe_cells()[name].mean())))
        with np.errstate(divide="ignore"):
            needed.append(abs(end - start) * float(np.mean(1.0 / np.array(steps))))
    return max(round(min(max(needed), most)), 1)


def draw_response(axes: Axes, response: Response, title: str) -> None:
    """Draws the mean of cells, one standard deviation around it, some cells, and their bounds."""
    weights = response.weights
    mean, spread = weights.mean(axis=1), weights.std(axis=1)
    few = response.typical(min(5, weights.shape[1]))
    single = axes.plot(response.pulses, few, color="0.6", linewidth=0.6)[0]
    band = axes.fill_between(
        response.pulses, mean - spread, mean + spread, color=COLORS[0], alpha=0.2, linewidth=0
    )
    (line,) = axes.plot(response.pulses, mean, color=COLORS[0])
    bounds = [axes.axhline(at, color="0.3", linestyle="--", lw=0.8) for at in response.bounds]
    axes.axvline(response.turn, color="0.5", linestyle=":", linewidth=0.8)
    axes.set(title=title, xlabel="pulses (up, then down)", ylabel="weight")
    axes.legend(
        [line, band, single, bounds[0]],
        ["mean of cells", "\u00b11 standard deviation", "single cells", "bounds, mean of cells"],
        loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False, fontsize="small",
    )  # fmt: skip
    axes.margins(y=0.15)


def plot_device(device: Device, *, title: str = "", **options: Any) -> Figure:
    """The response of a device, with some single cells; options as of `device_response`."""
    figure = ShownFigure(figsize=(6.0, 4.2), layout="constrained")
    response = device_response(device, **options)
    draw_response(figure.subplots(), response, title or type(device).__name__)
    return figure


def plot_drift(model: NoiseModel | DriftCurves, *, title: str = "", **options: Any) -> Figure:
    """Conductances of a noise model over time; options as of `drift_curves`, or its result."""
    figure = ShownFigure(figsize=(6.0, 4.2), layout="constrained")
    curves = model if isinstance(model, DriftCurves) else drift_curves(model, **options)
    name = "" if isinstance(model, DriftCurves) else model.model
    draw_drift(figure.subplots(), curves, title or name, COLORS)
    return figure


def plot_training(
    histories: Mapping[str, Sequence[Mapping[str, float]]],
    device: Device | None = None,
    device_name: str = "",
) -> Figure:
    """Loss and accuracy by epoch of several runs, and the response of their device.

    Args:
        histories: Per run, one table per epoch with epoch, loss and accuracy.
        device: Device whose response is drawn too, if given.
        device_name: Name of the device in the title; by default its model.
    """
    panels = 2 + (device is not None)
    figure = ShownFigure(
        figsize=(4.2 * panels, 3.6 if device is None else 4.2), layout="constrained"
    )
    loss, test, *rest = figure.subplots(1, panels)
    _draw_curves(loss, test, histories)
    for axes in (loss, test):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    loss.set(title="training loss", xlabel="epoch", ylabel="cross entropy")
    loss.set_ylim(bottom=0.0)
    test.set(title="test accuracy", xlabel="epoch", ylabel="%")
    loss.legend(frameon=False)
    if device is not None:
        title = f"response of {device_name or type(device).__name__}"
        draw_response(rest[0], device_response(device), title)
    return figure


def plot_accuracy(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Test accuracy by epoch of several runs, each labelled at its end.

    Args:
        histories: Per run, one table per epoch with epoch and accuracy, as `plot_training` takes
            them.
    """
    figure = ShownFigure(figsize=(6.4, 2.7), layout="constrained")
    axes = figure.subplots()
    labels = []
    for number, (name, history) in enumerate(histories.items()):
        color = COLORS[number % len(COLORS)]
        epochs = [row["epoch"] for row in history]
        accuracy = [100.0 * row["accuracy"] for row in history]
        axes.plot(epochs, accuracy, color=color, marker=".")
        labels.append((accuracy[-1], epochs[-1], f"{name}, {accuracy[-1]:.1f} %", color))
    low, high = axes.get_ylim()
    place = float("inf")
    for value, epoch, text, color in sorted(labels, reverse=True):
        place = min(value, place - 0.09 * (high - low))  # labels of close curves stay apart
        axes.annotate(
            text,
            (epoch, place),
            xytext=(8, 0),
            textcoords="offset points",
            color=color,
            verticalalignment="center",
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel="epoch", ylabel="test accuracy %")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_curves(
    loss: Axes, test: Axes, histories: Mapping[str, Sequence[Mapping[str, float]]], **style: Any
) -> None:
    """Draws loss and accuracy by epoch, each run in a colour of its own unless `style` sets one."""
    for number, (name, history) in enumerate(histories.items()):
        own = {"color": COLORS[number % len(COLORS)], "marker": ".", "label": name} | style
        epochs = [row["epoch"] for row in history]
        loss.plot(epochs, [row["loss"] for row in history], **own)
        test.plot(epochs, [100.0 * row["accuracy"] for row in history], **own)


def plot_forecast(forecast: LossForecast, target: float | None = None) -> Figure:
    """A loss curve, its expected continuation, and the forecast interval.

    Args:
        forecast: Result of `pulsora.forecast.forecast_loss`.
        target: A loss that is to be reached, drawn as a line.
    """
    figure = ShownFigure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    seen = np.arange(1, len(forecast.observed) + 1)
    axes.plot(seen, forecast.observed, color=COLORS[0], marker=".", label="so far")
    axes.plot(forecast.steps, forecast.expected, color=COLORS[1], label="expected")
    axes.fill_between(
        forecast.steps, forecast.lower, forecast.upper, color=COLORS[1], alpha=0.2, linewidth=0,
        label=f"with probability {forecast.level:g}",
    )  # fmt: skip
    if target is not None:
        axes.axhline(target, color="0.3", linestyle="--", linewidth=0.8, label="target")
    axes.set(title="training loss", xlabel="step", ylabel="loss", xscale="log", yscale="log")
    axes.legend(frameon=False)
    return figure


def plot_comparison(
    groups: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]],
) -> Figure:
    """Loss and accuracy by epoch of the same runs under several circumstances, side by side.

    Panels of a row share their axis. The curves of the first group are repeated in grey in the
    panels of later groups.

    Args:
        groups: Histories as `plot_training` takes them, by circumstance (such as the machine).

    Raises:
        ValueError: without a group.
    """
    if not groups:
        raise ValueError("there is nothing to compare: groups is empty")
    figure = ShownFigure(figsize=(4.4 * len(groups), 6.4), layout="constrained")
    panels = figure.subplots(2, len(groups), sharex=True, sharey="row", squeeze=False)
    first = next(iter(groups.values()))
    for (name, histories), (loss, test) in zip(groups.items(), panels.T, strict=True):
        if histories is not first:
            _draw_curves(loss, test, first, color="0.75", marker="", linewidth=4.0, label=None)
        _draw_curves(loss, test, histories)
        loss.set_title(name)
        test.set_xlabel("epoch")
        test.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panels[0, 0].set_ylabel("training loss")
    panels[0, 0].legend(frameon=False)
    panels[1, 0].set_ylabel("test accuracy %")
    return figure


def plot_transfer(transfers: Sequence[Mapping[str, float]]) -> Figure:
    """Gain and undelivered share of each transfer, as `tile.adapter.transfer_stats` has them.

    Raises:
        ValueError: if there has been no transfer.
    """
    if not transfers:
        raise ValueError("there has been no transfer yet; train for transfer_every samples first")
    figure = ShownFigure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(transfers) + 1)
    axes.plot(numbers, [t["gain"] for t in transfers], color=COLORS[0], label="gain")
    axes.plot(
        numbers, [t["undelivered"] for t in transfers], color=COLORS[1], label="undelivered share"
    )
    axes.axhline(1.0, color="0.6", linestyle=":", linewidth=0.8)
    axes.set(title="fidelity of transfers", xlabel="transfer", ylabel="share of transfer_lr A B")
    axes.legend(frameon=False)
    return figure


def plot_roofline(results: Sequence[Result], ceilings: Ceilings, title: str = "") -> Figure:
    """Operations per second reached against operations per byte, under the machine's ceilings.

    Args:
        results: Results of `pulsora.bench.measure.run`. Colours tell operations, shapes tell tiles,
            and sizes grow with the array.
        ceilings: Limits of the machine.
        title: Title of the figure.

    Raises:
        ValueError: without results.
    """
    if not results:
        raise ValueError("there are no results to draw")
    figure = ShownFigure(figsize=(8.4, 4.8), layout="constrained")
    axes = figure.subplots()
    operations = list(dict.fromkeys(result.case.operation for result in results))
    tiles = list(dict.fromkeys(result.case.tile for result in results))
    sizes = sorted({result.case.size for result in results})
    intensities = [result.work.operations / result.work.bytes for result in results]
    for result, intensity in zip(results, intensities, strict=True):
        axes.plot(
            intensity,
            result.work.operations / result.time.median,
            color=COLORS[operations.index(result.case.operation) % len(COLORS)],
            marker=_MARKERS[tiles.index(result.case.tile) % len(_MARKERS)],
            markersize=7.0 + 3.0 * sizes.index(result.case.size),
            markeredgecolor="white",
            linestyle="",
        )
    ridge = ceilings.operations / ceilings.bytes
    x = np.geomspace(0.4 * min(ridge, *intensities), 2.5 * max(ridge, *intensities), 200)
    roof = np.minimum(ceilings.bytes * x, ceilings.operations)
    label = f"{ceilings.bytes:.3g} bytes/s, {ceilings.operations:.3g} operations/s"
    axes.plot(x, roof, color="0.4", linewidth=1.2, label=label)
    for number, name in enumerate(operations):
        axes.plot([], [], "s", color=COLORS[number % len(COLORS)], label=name)
    for number, name in enumerate(tiles):
        axes.plot([], [], _MARKERS[number % len(_MARKERS)], color="0.5", label=name)
    axes.set(xscale="log", yscale="log", title=title)
    axes.set(xlabel="least operations per byte", ylabel="operations per second")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
