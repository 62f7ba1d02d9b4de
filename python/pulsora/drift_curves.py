"""The drift of a noise model: conductances of programmed devices over time.

`pulsora.plot.plot_drift` draws the curves, `pulsora plot-drift` shows them as a table too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core
from pulsora._internal.checks import require_at_least
from pulsora._internal.text_tables import aligned
from pulsora._internal.times import described, seconds
from pulsora.config import InferenceConfig
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from pulsora.noise_models import NoiseModel

__all__ = ["DriftCurves", "draw_drift", "drift_curves"]

_TIMES = ("1 s", "1 min", "1 hour", "1 day", "1 month", "1 year")


@dataclass(frozen=True)
class DriftCurves:
    """Conductances of devices over the time since programming.

    Attributes:
        times: Seconds since the end of programming, [times].
        targets: What the devices were programmed to, in uS, [targets].
        conductances: What reads see, in uS, [times, targets, devices].
    """

    times: NDArray[np.float64]
    targets: NDArray[np.float32]
    conductances: NDArray[np.float32]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over the devices of a target in uS, [times, targets]."""
        found: NDArray[np.float64] = self.conductances.mean(axis=2, dtype=np.float64)
        return found

    @property
    def std(self) -> NDArray[np.float64]:
        """Standard deviation over the devices of a target (n - 1) in uS, [times, targets]."""
        found: NDArray[np.float64] = self.conductances.std(axis=2, ddof=1, dtype=np.float64)
        return found

    def __str__(self) -> str:
        heads = [f"{target:.3g} uS" for target in self.targets]
        rows = [("time", *heads)]
        for time, means, stds in zip(self.times, self.mean, self.std, strict=True):
            cells = (f"{mean:.2f} +- {std:.2f}" for mean, std in zip(means, stds, strict=True))
            rows.append((described(float(time)), *cells))
        return aligned(rows)


def drift_curves(
    model: NoiseModel,
    *,
    times: Sequence[float | str] | None = None,
    levels: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
    devices: int = 200,
    seed: int = 1,
) -> DriftCurves:
    """Programs devices to some conductances and reads them at some times.

    Args:
        model: A noise model, such as `pulsora.noise_models.PCMLike()`.
        times: Seconds since the end of programming, or texts such as "1 day"; by default from a
            second to a year, as far as the model has numbers.
        levels: Targets as shares of the range from g_min to g_max, in [0, 1].
        devices: Number of devices of each target, from 2 up.
        seed: Seed of the devices and of their noise.

    Raises:
        ValueError: For no times, a level out of range, and fewer than 2 devices.
        ConfigError: For a time for which the model has no numbers, and for a bad seed.
    """
    require_at_least("devices", devices, 2)
    last = _core.last_time(model.to_dict())
    wanted = [seconds(time) for time in (_TIMES if times is None else times)]
    if times is None:
        wanted = [time for time in wanted if time < last] + [last] * (wanted[-1] >= last)
    if not wanted:
        raise ValueError("times is empty; give at least one time")
    if not len(levels) or not all(0.0 <= level <= 1.0 for level in levels):
        raise ValueError(f"levels are {list(levels)}; give shares of the range, from 0 to 1")
    config = InferenceConfig(noise_model=model, scaling_per="tile", compensation="none")
    # A weight of 1 makes the scale 1: the first device of a pair holds a positive weight.
    tile = Tile(len(levels) + 1, devices, config, seed=seed)
    tile.weights = np.repeat(np.array([*levels, 1.0], np.float32)[:, None], devices, axis=1)
    array: Any = tile.programming
    array.program()
    seen = []
    for time in wanted:
        array.drift(time)
        seen.append(array.conductances()[: len(levels), :, 0])
    targets = array.conductances("target")[: len(levels), 0, 0]
    return DriftCurves(np.array(wanted), targets, np.array(seen))


def draw_drift(axes: Axes, curves: DriftCurves, title: str, colors: Sequence[str]) -> None:
    """Draws mean, band of one standard deviation, and some devices of each target."""
    times = np.maximum(curves.times, 1e-3)  # a logarithmic axis has no 0
    for index, target in enumerate(curves.targets):
        color = colors[index % len(colors)]
        mean, std = curves.mean[:, index], curves.std[:, index]
        axes.plot(times, curves.conductances[:, index, :5], color=color, alpha=0.3, linewidth=0.6)
        axes.fill_between(times, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)
        axes.plot(times, mean, "-o", color=color, markersize=3, label=f"target {target:.3g} uS")
    axes.set(
        title=title, xscale="log", xlabel="time after programming in s", ylabel="conductance in uS"
    )
    axes.legend(frameon=False, fontsize="small", ncols=2, loc="upper center",
                bbox_to_anchor=(0.5, -0.2))  # fmt: skip
