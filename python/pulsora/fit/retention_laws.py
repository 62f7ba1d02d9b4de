"""The laws that are fitted to readings of conductances over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import noise_models
from pulsora.fit.retention_leak import leak_density, leak_maximum
from pulsora.fit.retention_model import maximum, power_law_density, shift_density
from pulsora.fit.retention_readings import FEWEST_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from pulsora.fit.retention_model import Cells
    from pulsora.noise_models import NoiseModel

    _Array = NDArray[np.float64]

__all__ = ["FEWEST_POSITIVE", "LAWS", "OWN_START", "Fitted", "Setting", "has_logarithms"]

_GROUPS = 20  # of the jackknife
FEWEST_POSITIVE = FEWEST_CELLS // 2
"""The fewest cells of a target to which a law of logarithms is fitted; others are held out."""


@dataclass(frozen=True)
class Setting:
    """The largest conductance of the devices, and the times of the power law, as given."""

    g_max: float
    t_0: float
    t_read: float


@dataclass(frozen=True)
class Fitted:
    """A law with its numbers.

    Attributes:
        values: Numbers by name, as "nu_mean[0]".
        errors: Their standard errors; NaN where the data do not tell a number.
        model: The noise model of these numbers.
        densities: For each target, the log density of the readings of each cell.
    """

    values: dict[str, float]
    errors: dict[str, float]
    model: NoiseModel
    densities: list[Callable[[Cells], _Array]]

    def score(self, cells: Sequence[Cells]) -> tuple[float, int]:
        """Returns the log density of the readings of other cells, and the number of these."""
        found = zip(self.densities, cells, strict=True)
        total = sum(float(density(each).sum()) for density, each in found)
        return total, sum(each.readings.size for each in cells)


def has_logarithms(cells: Cells) -> NDArray[np.bool_]:
    """Returns for each cell whether all its readings are positive."""
    kept: NDArray[np.bool_] = np.all(cells.readings > 0.0, axis=1)
    return kept


def _positive(cells: Cells) -> Cells:
    """Leaves out cells with readings that are not positive, of which no logarithm exists."""
    kept = has_logarithms(cells)
    if kept.sum() < FEWEST_POSITIVE:
        raise ValueError(
            f"of target {cells.target:g} uS, {int(kept.sum())} of the {len(kept)} cells that are "
            f"fitted have positive readings alone, and {FEWEST_POSITIVE} must have; give more "
            "cells, or leave this target out"
        )
    return cells.of(kept)


def _of(density: Callable[..., _Array], *numbers: Any) -> Callable[[Cells], _Array]:
    """Returns a density with these numbers as a function of the cells alone."""
    return lambda cells: density(cells, *numbers)


def _named(
    names: Sequence[str], rows: Iterable[_Array], deviations: Iterable[_Array], plain: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns values and errors by name, "name[target]", of logarithms, and of `plain` itself."""
    values, errors = {}, {}
    for node, (row, deviation) in enumerate(zip(rows, deviations, strict=True)):
        for name, number, error in zip(names, row, deviation, strict=False):
            value = float(number) if name == plain else math.exp(number)
            values[f"{name}[{node}]"] = value
            errors[f"{name}[{node}]"] = float(error) * (1.0 if name == plain else value)
    return values, errors


def _tables(values: dict[str, float], names: Sequence[str]) -> dict[str, Any]:
    """Returns the numbers of each name as a list."""
    return {
        name: [value for key, value in values.items() if key.startswith(f"{name}[")]
        for name in names
    }


def _power_law(cells: Sequence[Cells], setting: Setting) -> Fitted:
    rows, deviations = [], []
    for each in cells:
        kept = _positive(each)
        age = kept.times + setting.t_0
        x = np.log(age / setting.t_0)
        if len(x) < 3 or np.ptp(x) < 0.1:
            raise ValueError(
                f"the cells of target {each.target:g} uS are read at {len(x)} times between "
                f"{kept.times[0]:g} and {kept.times[-1]:g} s; a power law needs three times at "
                f"least, some of them well beyond t_0 = {setting.t_0:g} s"
            )
        logs = np.log(kept.readings)
        slopes, starts = np.polyfit(x, logs.T, 1)
        rest = logs - starts[:, None] - slopes[:, None] * x
        growth = np.log((age + setting.t_read) / (2.0 * setting.t_read))
        q = math.sqrt(max(float((rest**2 / growth).mean()) * len(x) / (len(x) - 2), 1e-12))
        sigma = math.log(max(float(np.exp(starts).std()), 1e-3 * each.target))
        start = np.array([sigma, -slopes.mean(), math.log(slopes.std() + 1e-4), math.log(q)])
        low, high = math.log(1e-6 * each.target), math.log(10.0 * each.target)
        limits = [(low, high), (-2.0, 2.0), (math.log(1e-5), 0.0), (math.log(1e-6), 0.0)]

        def density(values: _Array, kept: Cells = kept) -> _Array:
            return power_law_density(kept, values, setting.t_0, setting.t_read)

        found, spread, _ = maximum(density, start, limits)
        rows.append(found)
        deviations.append(np.sqrt(np.diag(spread)))
    names = ("sigma", "nu_mean", "nu_std", "read_noise")
    values, errors = _named(names, rows, deviations, "nu_mean")
    model = noise_models.PowerLaw(
        g_max=setting.g_max, t_0=setting.t_0, t_read=setting.t_read,
        g=[each.target / setting.g_max for each in cells],
        **_tables(values, names),
    )  # fmt: skip
    return Fitted(
        values, errors, model,
        [_of(power_law_density, row, setting.t_0, setting.t_read) for row in rows],
    )  # fmt: skip


def _exponential(cells: Sequence[Cells], setting: Setting) -> Fitted:
    kept = [_positive(each) for each in cells]
    for each in kept:
        if len(each.times) < 3:
            raise ValueError(
                f"the cells of target {each.target:g} uS are read at {len(each.times)} times; an "
                "exponential law needs three times at least"
            )
    found, deviations = leak_maximum(kept)
    names = ("sigma", "tau", "tau_std", "read_noise")
    values, errors = _named(names, found[:, :4], deviations[:, :4], "")
    values["rest"], errors["rest"] = float(found[0, 4]), float(deviations[0, 4])
    model = noise_models.Exponential(
        g_max=setting.g_max, rest=min(values["rest"], setting.g_max),  # noise may lead beyond it
        g=[each.target / setting.g_max for each in cells],
        **_tables(values, names),
    )  # fmt: skip
    return Fitted(values, errors, model, [_of(leak_density, row) for row in found])


def _shift(cells: Sequence[Cells], setting: Setting) -> Fitted:
    times = _common_times(cells)
    shifts, sigmas = _moments(cells)
    persistence, error = _persistence_and_error(cells)
    counts = np.array([[len(each.readings)] for each in cells])
    deviations = sigmas / np.sqrt(counts), sigmas / np.sqrt(2 * counts)
    return _shift_fitted(
        cells, setting, times, shifts, sigmas, deviations,
        persistence, error, extrapolate=False,
    )  # fmt: skip


def _logarithmic(cells: Sequence[Cells], setting: Setting) -> Fitted:
    times = _common_times(cells)
    later = times[times > 0.0]
    if len(later) < 2:
        raise ValueError(
            f"readings are at {len(later)} times after the end of programming; a law in the "
            "logarithm of time needs two at least"
        )
    ends = later[[0, -1]]
    u = np.log(np.maximum(times, ends[0]) / ends[0]) / math.log(ends[1] / ends[0])
    persistence, error = _persistence_and_error(cells)
    moments = zip(cells, *_moments(cells), strict=True)
    found, deviations = [], []
    for each, shift, sigma in moments:
        line, width = np.polyfit(u, shift, 1), np.polyfit(u, sigma, 1)
        least = 0.1 * float(sigma.min())
        start = np.array([
            line[1], line.sum(), math.log(max(width[1], least)),
            math.log(max(width.sum(), least)),
        ])  # fmt: skip
        reach = 10.0 * (float(np.abs(shift).max()) + float(sigma.max()))
        wide = (math.log(least) - 3.0, math.log(float(sigma.max())) + 3.0)

        def density(values: _Array, each: Cells = each) -> _Array:
            return shift_density(each, _along(values, u, persistence))

        best, spread, _ = maximum(density, start, [(-reach, reach)] * 2 + [wide] * 2)
        found.append(best)
        deviations.append(np.sqrt(np.diag(spread)))
    rows, errors = np.stack(found), np.stack(deviations)
    sigmas = np.exp(rows[:, 2:])
    return _shift_fitted(
        cells, setting, ends, rows[:, :2], sigmas, (errors[:, :2], sigmas * errors[:, 2:]),
        persistence, error, extrapolate=True,
        density=[_of(shift_density, _along(row, u, persistence)) for row in rows],
    )  # fmt: skip


def _along(ends: _Array, u: _Array, persistence: float) -> _Array:
    """Returns the numbers of shift_density() of a law that is linear between two ends."""
    shift = ends[0] + u * (ends[1] - ends[0])
    first, last = np.exp(ends[2:])
    return np.concatenate([shift, np.log(first + u * (last - first)), [persistence]])


def _shift_fitted(
    cells: Sequence[Cells], setting: Setting, times: _Array, shifts: _Array, sigmas: _Array,
    deviations: tuple[_Array, _Array], persistence: float, error: float, *, extrapolate: bool,
    density: list[Callable[[Cells], _Array]] | None = None,
) -> Fitted:  # fmt: skip
    """Returns a shift law with these numbers, [targets, times]."""
    values, errors = {}, {}
    for name, table, spread in (("shift", shifts, deviations[0]), ("sigma", sigmas, deviations[1])):
        for entry, (value, own) in enumerate(zip(table.T.ravel(), spread.T.ravel(), strict=True)):
            values[f"{name}[{entry}]"], errors[f"{name}[{entry}]"] = float(value), float(own)
    values["persistence"], errors["persistence"] = persistence, error
    later = times > 0.0  # the tables begin at the first time after the end of programming
    model = noise_models.Shift(
        g_max=setting.g_max, times=times[later].tolist(), extrapolate=extrapolate,
        g=[each.target / setting.g_max for each in cells],
        shift=shifts[:, later].T.ravel().tolist(), sigma=sigmas[:, later].T.ravel().tolist(),
        persistence=persistence,
    )  # fmt: skip
    made = density or [
        _of(shift_density, np.concatenate([s, np.log(d), [persistence]]))
        for s, d in zip(shifts, sigmas, strict=True)
    ]
    return Fitted(values, errors, model, made)


def _common_times(cells: Sequence[Cells]) -> _Array:
    times = cells[0].times
    if any(not np.array_equal(each.times, times) for each in cells):
        raise ValueError(
            "targets are read at different times, and the tables of a shift law have one list "
            "of times; give all targets the same times, or law='power_law' or 'exponential'"
        )
    if times[-1] <= 0.0:
        raise ValueError("all readings are at time 0; a shift law needs a later time")
    return times


def _moments(cells: Sequence[Cells]) -> tuple[_Array, _Array]:
    """Returns mean deviation from the target, and standard deviation, [targets, times]."""
    shifts = np.stack([each.readings.mean(axis=0) - each.target for each in cells])
    return shifts, np.stack([np.maximum(each.readings.std(axis=0), 1e-9) for each in cells])


def _persistence_and_error(cells: Sequence[Cells]) -> tuple[float, float]:
    if len(cells[0].times) < 2:
        return 0.5, math.nan
    # Moments and persistence vary together; the jackknife leaves out a group of cells.
    without = np.array([_persistence(_left_out(cells, k)) for k in range(_GROUPS)])
    return _persistence(cells), math.sqrt(float((_GROUPS - 1) * without.var()))


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
    return [each.of(np.arange(len(each.readings)) % _GROUPS != group) for each in cells]


LAWS: dict[str, Callable[[Sequence[Cells], Setting], Fitted]] = {
    "power_law": _power_law,
    "exponential": _exponential,
    "log": _logarithmic,
    "shift": _shift,
}
"""How each law is fitted, by its name."""

OWN_START = ("power_law", "exponential")
"""Laws that follow a cell from its own first conductance, so that they need no targets."""
