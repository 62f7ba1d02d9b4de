"""Noise models of programmed arrays from conductances that were read at several times."""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pulsora import noise_models
from pulsora._internal.text_tables import aligned
from pulsora.fit.retention_model import Cells, maximum, power_law_density, shift_density
from pulsora.fit.retention_readings import column_of, grouped, read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from pulsora.noise_models import NoiseModel

    _Array = NDArray[np.float64]

__all__ = ["RetentionFit", "retention"]

_COLUMNS = ("cell", "target", "time", "conductance")
_FEWEST_CELLS = 8  # of a target
_GROUPS = 20  # of the jackknife


@dataclass(frozen=True)
class RetentionFit:
    """Noise models that were fitted to readings, the likeliest first.

    Attributes:
        noise_model: The model of the likeliest law, for `InferenceConfig(noise_model=...)`.
        law: "power_law" or "shift".
        values: The fitted numbers of that law by name, as "nu_mean[0]", in the order of the model's
            tables; the persistence of a shift.
        standard_errors: Their standard errors; NaN where the data do not tell a number.
        likelihoods: For each law, the mean log density of a reading of the held-out cells.
        models: The model of each law.
        left_out: Cells with readings that are not positive, which the power law leaves out.
        cells: The cells, by target.
    """

    noise_model: NoiseModel
    law: str
    values: dict[str, float]
    standard_errors: dict[str, float]
    likelihoods: dict[str, float]
    models: dict[str, NoiseModel]
    left_out: int
    cells: tuple[Cells, ...]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("parameter", "value", "standard error")]
        rows += [
            (name, f"{value:.5g}", f"{self.standard_errors[name]:.2g}")
            for name, value in self.values.items()
        ]
        laws = ", ".join(f"{law} {value:.4f}" for law, value in self.likelihoods.items())
        return f"{self.law}: log density of a held-out reading: {laws}\n{aligned(rows)}"

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws readings over time, and mean and deviation that the model gives. Needs matplotlib.

        Args:
            path: File for the figure; None writes none.
        """
        from pulsora.fit.retention_figure import plot_retention  # noqa: PLC0415 - matplotlib

        figure = plot_retention(self.cells, self.noise_model)
        if path is not None:
            figure.savefig(path, dpi=120, metadata={"Software": None})
        return figure


def retention(
    readings: str | os.PathLike[str] | Mapping[str, ArrayLike],
    *,
    law: Literal["auto", "power_law", "shift"] = "auto",
    g_max: float | None = None,
    t_0: float = 20.0,
    t_read: float = 250e-9,
    held_out: float = 0.2,
) -> RetentionFit:
    """Fits noise models to conductances of programmed cells over time, by maximum likelihood.

    Programming error, drift and read noise are told apart because a cell is read at several times.
    The power law (`noise_models.PowerLaw`) gives each target a programming error, mean and standard
    deviation of nu, and read noise Q. The shift law (`noise_models.Shift`) gives each target and
    time a mean and a standard deviation, and has one persistence. Each law is also fitted to a part
    of the cells; the law under which the other cells are likelier is taken.

    Args:
        readings: A CSV file with the columns `cell`, `target` and `conductance` in uS and `time` in
            s since the end of programming; or these columns as arrays by name. All cells of a
            target are read at the same times.
        law: The law to fit; "auto" tries both.
        g_max: Largest conductance of the device in uS; by default the largest target.
        t_0: Time from which the power law counts drift, in s.
        t_read: Duration of a read in s, for the 1/f noise of the power law.
        held_out: Share of the cells of each target that the comparison of laws holds out.

    Raises:
        ValueError: For data to which nothing can be fitted, with advice; for a file by line and
            column.
        OSError: If the file cannot be read.
        ImportError: Without SciPy.
    """
    if importlib.util.find_spec("scipy") is None:
        raise ImportError("pulsora.fit needs SciPy; install it with pip install 'pulsora[fit]'")
    if law not in {"auto", "power_law", "shift"}:
        raise ValueError(f"law = {law!r}: write 'auto', 'power_law' or 'shift'")
    if not 0.0 < held_out < 1.0:
        raise ValueError(f"held_out = {held_out}: give a share between 0 and 1")
    for name, value in (("t_0", t_0), ("t_read", t_read)):
        if not (value > 0.0 and math.isfinite(value)):
            raise ValueError(f"{name} = {value}: give a positive number of seconds")
    columns = read_columns(readings) if isinstance(readings, str | os.PathLike) else readings
    cells = grouped({name: column_of(columns, name) for name in _COLUMNS})
    largest = max(each.target for each in cells) if g_max is None else g_max
    if not largest >= max(each.target for each in cells):
        raise ValueError(f"g_max = {g_max}, and a target is {max(c.target for c in cells)} uS")
    laws = ["power_law", "shift"] if law == "auto" else [law]
    train, test = zip(*(_split(each, held_out) for each in cells), strict=True)
    fits = {}
    likelihoods = {}
    for each in laws:
        fitted = _Law(each, largest, t_0, t_read)
        likelihoods[each] = fitted.score(test, fitted.fit(train))
        fits[each] = (fitted, fitted.fit(cells))
    best = max(likelihoods, key=lambda name: likelihoods[name])
    chosen, numbers = fits[best]
    values, errors = chosen.named(cells, numbers)
    models = {name: fitted.model(cells, found) for name, (fitted, found) in fits.items()}
    left_out = sum(int((each.readings <= 0.0).any(axis=1).sum()) for each in cells)
    return RetentionFit(
        models[best], best, values, errors, likelihoods, models, left_out, tuple(cells)
    )


class _Law:
    """A law whose numbers are fitted, target by target."""

    def __init__(self, name: str, g_max: float, t_0: float, t_read: float) -> None:
        self.name = name
        self.g_max = g_max
        self.t_0, self.t_read = t_0, t_read

    def fit(self, cells: tuple[Cells, ...] | list[Cells]) -> tuple[_Array, _Array]:
        """Returns values and variances: a row for each target, and the persistence of a shift."""
        if self.name == "power_law":
            rows = [self._power_law(each) for each in cells]
            return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
        return self._shift(cells)

    def _power_law(self, cells: Cells) -> tuple[_Array, _Array]:
        kept = _positive(cells)
        age = kept.times + self.t_0
        x = np.log(age / self.t_0)
        if len(x) < 3 or np.ptp(x) < 0.1:
            raise ValueError(
                f"the cells of target {cells.target:g} uS are read at {len(x)} times between "
                f"{kept.times[0]:g} and {kept.times[-1]:g} s; a power law needs three times at "
                f"least, some of them well beyond t_0 = {self.t_0:g} s"
            )
        logs = np.log(kept.readings)
        slopes, starts = np.polyfit(x, logs.T, 1)
        rest = logs - starts[:, None] - slopes[:, None] * x
        growth = np.log((age + self.t_read) / (2.0 * self.t_read))
        q = math.sqrt(max(float((rest**2 / growth).mean()) * len(x) / (len(x) - 2), 1e-12))
        sigma = max(float(np.exp(starts).std()), 1e-3 * cells.target)
        start = np.array(
            [math.log(sigma), -slopes.mean(), math.log(slopes.std() + 1e-4), math.log(q)]
        )
        low, high = math.log(1e-6 * cells.target), math.log(10.0 * cells.target)
        limits = [(low, high), (-2.0, 2.0), (math.log(1e-5), 0.0), (math.log(1e-6), 0.0)]

        def density(values: _Array) -> _Array:
            return power_law_density(kept, values, self.t_0, self.t_read)

        values, covariance, _ = maximum(density, start, limits)
        return values, np.diag(covariance)

    def _shift(self, cells: tuple[Cells, ...] | list[Cells]) -> tuple[_Array, _Array]:
        times = cells[0].times
        if any(not np.array_equal(each.times, times) for each in cells):
            raise ValueError(
                "targets are read at different times, and the tables of a shift law have one list "
                "of times; give all targets the same times, or law='power_law'"
            )
        if times[-1] <= 0.0:
            raise ValueError("all readings are at time 0; a shift law needs a later time")
        count = len(times)
        shifts, sigmas = _moments(cells)
        persistence, variance = 0.5, math.nan
        if count > 1:
            persistence = _persistence(cells)
            # Moments and persistence vary together; the jackknife leaves out a group of cells.
            without = np.array([_persistence(_left_out(cells, k)) for k in range(_GROUPS)])
            variance = float((_GROUPS - 1) * without.var())
        cells_of = np.array([[len(each.readings)] for each in cells])
        rows = np.concatenate([shifts, np.log(sigmas)], axis=1)
        spread = np.concatenate(
            [sigmas**2 / cells_of, np.full_like(sigmas, 0.5) / cells_of], axis=1
        )
        last = np.full((1, 2 * count), np.nan)
        last[0, 0] = persistence
        last_variance = np.full((1, 2 * count), np.nan)
        last_variance[0, 0] = variance
        return np.concatenate([rows, last]), np.concatenate([spread, last_variance])

    def score(self, cells: tuple[Cells, ...], found: tuple[_Array, _Array]) -> float:
        """Returns the mean log density of a reading."""
        total, readings = 0.0, 0
        for row, each in zip(found[0], cells, strict=False):
            kept = _positive(each)
            if self.name == "power_law":
                density = power_law_density(kept, row, self.t_0, self.t_read)
            else:
                density = shift_density(kept, np.append(row, found[0][-1, 0]))
            total += float(density.sum())
            readings += kept.readings.size
        return total / readings

    def named(
        self, cells: list[Cells], found: tuple[_Array, _Array]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Returns values and standard errors by the names of the model's parameters."""
        values, errors = {}, {}
        rows, deviations = found[0], np.sqrt(found[1])
        if self.name == "power_law":
            for node in range(len(cells)):
                for place, name in enumerate(("sigma", "nu_mean", "nu_std", "read_noise")):
                    value, error = rows[node, place], deviations[node, place]
                    if name != "nu_mean":
                        value = math.exp(value)
                        error *= value
                    values[f"{name}[{node}]"], errors[f"{name}[{node}]"] = value, float(error)
            return values, errors
        count = len(cells[0].times)
        for time in range(count):
            for node in range(len(cells)):
                entry = time * len(cells) + node
                values[f"shift[{entry}]"] = float(rows[node, time])
                errors[f"shift[{entry}]"] = float(deviations[node, time])
                sigma = math.exp(rows[node, count + time])
                values[f"sigma[{entry}]"] = sigma
                errors[f"sigma[{entry}]"] = sigma * float(deviations[node, count + time])
        values["persistence"], errors["persistence"] = float(rows[-1, 0]), float(deviations[-1, 0])
        return values, errors

    def model(self, cells: list[Cells], found: tuple[_Array, _Array]) -> NoiseModel:
        """Returns the noise model of these numbers."""
        values, _ = self.named(cells, found)
        nodes = [each.target / self.g_max for each in cells]

        def table(name: str) -> list[float]:
            return [value for key, value in values.items() if key.startswith(f"{name}[")]

        if self.name == "power_law":
            return noise_models.PowerLaw(
                g_max=self.g_max, t_0=self.t_0, t_read=self.t_read, g=nodes, sigma=table("sigma"),
                nu_mean=table("nu_mean"), nu_std=table("nu_std"), read_noise=table("read_noise"),
            )  # fmt: skip
        times = cells[0].times
        later = times > 0.0  # the tables begin at the first time after the end of programming
        keep = np.flatnonzero(later)
        shifts = np.array(table("shift")).reshape(len(times), -1)[keep].ravel().tolist()
        sigmas = np.array(table("sigma")).reshape(len(times), -1)[keep].ravel().tolist()
        return noise_models.Shift(
            g_max=self.g_max, times=times[keep].tolist(), g=nodes, shift=shifts, sigma=sigmas,
            persistence=values["persistence"],
        )  # fmt: skip


def _moments(cells: Sequence[Cells]) -> tuple[_Array, _Array]:
    """Returns mean deviation from the target, and standard deviation, [targets, times]."""
    shifts = np.stack([each.readings.mean(axis=0) - each.target for each in cells])
    return shifts, np.stack([np.maximum(each.readings.std(axis=0), 1e-9) for each in cells])


def _persistence(cells: Sequence[Cells]) -> float:
    """Returns the likeliest persistence of a shift law with the moments of these cells."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - optional

    shifts, sigmas = _moments(cells)

    def cost(persistence: float) -> float:
        return -sum(
            float(shift_density(each, np.concatenate([s, np.log(d), [persistence]])).sum())
            for each, s, d in zip(cells, shifts, sigmas, strict=True)
        )

    return float(minimize_scalar(cost, bounds=(0.0, 1.0 - 1e-6), method="bounded").x)


def _left_out(cells: Sequence[Cells], group: int) -> list[Cells]:
    """Returns the cells without every so many of them."""
    return [
        Cells(
            each.target, each.times, each.readings[np.arange(len(each.readings)) % _GROUPS != group]
        )
        for each in cells
    ]


def _positive(cells: Cells) -> Cells:
    """Leaves out cells with readings that are not positive, of which no logarithm exists."""
    kept = (cells.readings > 0.0).all(axis=1)
    if kept.sum() < _FEWEST_CELLS // 2:
        raise ValueError(
            f"of target {cells.target:g} uS, {int(kept.sum())} cells have positive readings alone; "
            f"give {_FEWEST_CELLS} at least, or leave this target out"
        )
    return Cells(cells.target, cells.times, cells.readings[kept])


def _split(cells: Cells, share: float) -> tuple[Cells, Cells]:
    """Cuts cells into a part that is fitted and one that is held out, every so many cells."""
    every = max(2, round(1.0 / share))
    out = np.arange(len(cells.readings)) % every == 0
    return (
        Cells(cells.target, cells.times, cells.readings[~out]),
        Cells(cells.target, cells.times, cells.readings[out]),
    )
