"""Noise models of programmed arrays from conductances that were read at several times."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pulsora._internal.checks import require_positive_real, require_share
from pulsora._internal.text_tables import aligned
from pulsora.fit.retention_laws import FEWEST_POSITIVE, LAWS, OWN_START, Setting, has_logarithms
from pulsora.fit.retention_readings import cells_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from pulsora.fit.retention_laws import Fitted
    from pulsora.fit.retention_model import Cells
    from pulsora.noise_models import NoiseModel

__all__ = ["RetentionFit", "retention"]

_NORMAL = ("log", "shift")  # laws by which deviations from a target are normal
_MOST_ZEROS = 0.02  # share of a target's readings, above which their bound shows in a fit
_TIE = 1.0  # a smaller difference of held-out log densities says nothing


@dataclass(frozen=True)
class RetentionFit:
    """Noise models that were fitted to readings, the likeliest first.

    Attributes:
        noise_model: The model of the likeliest law, for `InferenceConfig(noise_model=...)`.
        law: "power_law", "exponential", "log" or "shift".
        values: The fitted numbers of that law by name, as "nu_mean[0]", in the order of the model's
            tables; the persistence of a shift.
        standard_errors: Their standard errors; NaN where the data do not tell a number.
        likelihoods: For each law, the mean log density of a reading of the held-out cells, without
            cells that the power law leaves out.
        models: The model of each law that could be fitted.
        problems: Why a law could not be fitted, by its name.
        left_out: Cells with readings that are not positive, which the power law and the exponential
            law leave out.
        cells: The cells, by target.
        targets_given: Whether the readings name targets; without them, the programming error is
            not told, and 0 in the models.
    """

    noise_model: NoiseModel
    law: str
    values: dict[str, float]
    standard_errors: dict[str, float]
    likelihoods: dict[str, float]
    models: dict[str, NoiseModel]
    problems: dict[str, str]
    left_out: int
    cells: tuple[Cells, ...]
    targets_given: bool = True

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("parameter", "value", "standard error")]
        rows += [
            (name, f"{value:.5g}", f"{self.standard_errors[name]:.2g}")
            for name, value in self.values.items()
        ]
        laws = ", ".join(f"{law} {value:.4f}" for law, value in self.likelihoods.items())
        notes = [f"{law} was not fitted: {problem}" for law, problem in self.problems.items()]
        if self.left_out and self.law in OWN_START:
            notes.append(f"{self.left_out} cells have readings that are not positive: left out")
        if not self.targets_given:
            notes.append("without targets, the programming error is not told")
        head = f"{self.law}: log density of a held-out reading: {laws}"
        return "\n".join([head, *notes, aligned(rows)])

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
    law: Literal["auto", "power_law", "exponential", "log", "shift"] = "auto",
    g_max: float | None = None,
    t_0: float = 20.0,
    t_read: float = 250e-9,
    held_out: float = 0.2,
) -> RetentionFit:
    """Fits noise models to conductances of cells over time, by maximum likelihood.

    Programming error, drift and read noise are told apart because a cell is read at several times.

    - "power_law" (`noise_models.PowerLaw`): each target has a programming error, mean and standard
      deviation of nu, and read noise Q.
    - "exponential" (`noise_models.Exponential`): each target has a programming error, a time
      constant and its spread, and read noise; all have one resting conductance.
    - "log" (`noise_models.Shift` of two times): mean and standard deviation of a target are linear
      in the logarithm of time.
    - "shift" (`noise_models.Shift`): each target and time has a mean and a standard deviation, and
      all have one persistence.

    Each law is also fitted to a part of the cells; the law under which the other cells are
    likeliest is taken. Of laws that differ by less than 1 in the logarithm, it is the one with the
    fewest numbers.

    Args:
        readings: A CSV file with the columns `cell`, `time` in s since the end of programming,
            `conductance` in uS and, if it is known, `target` in uS; or these columns as arrays by
            name. All cells of a target are read at the same times. Without targets, cells are
            sorted into levels by their first reading, and the laws are "power_law" and
            "exponential".
        law: The law to fit; "auto" tries all.
        g_max: Largest conductance of the device in uS; by default the largest target.
        t_0: Time from which the power law counts drift, in s.
        t_read: Duration of a read in s, for the 1/f noise of the power law.
        held_out: Share of the cells of each target that the comparison of laws holds out.

    Raises:
        TypeError: If `readings` is neither a file nor columns by name.
        ValueError: For data to which nothing can be fitted, with advice; for a file by line and
            column.
        OSError: If the file cannot be read.
        ImportError: Without SciPy.
    """
    if importlib.util.find_spec("scipy") is None:
        raise ImportError("pulsora.fit needs SciPy; install it with pip install 'pulsora[fit]'")
    _require_settings(law, t_0, t_read, held_out)
    cells, known = cells_of(readings)
    largest = max(each.target for each in cells)
    if g_max is not None:
        require_positive_real("g_max", g_max)
    if g_max is not None and not g_max >= largest:
        raise ValueError(f"g_max = {g_max}, and a target is {largest} uS")
    if not known and law not in {"auto", *OWN_START}:
        raise ValueError(
            f"law = {law!r} is of deviations from targets, and the readings have no column "
            f"'target'; give it, or law='power_law' or 'exponential'"
        )
    setting = Setting(largest if g_max is None else g_max, t_0, t_read)
    names = (LAWS if known else OWN_START) if law == "auto" else [law]
    fits, scores, problems = _fitted(names, cells, setting, held_out)
    if not fits:
        only = next(iter(problems.values()))
        raise ValueError(
            only if law != "auto" else "; ".join(f"{n}: {p}" for n, p in problems.items())
        )
    highest = max(scores[name][0] for name in fits)
    close = [name for name in fits if scores[name][0] > highest - _TIE]
    best = min(close, key=lambda name: len(fits[name].values))
    if best in _NORMAL:
        _warn_of_zeros(cells)
    models = {name: fitted.model for name, fitted in fits.items()}
    values, errors = dict(fits[best].values), dict(fits[best].errors)
    if not known:  # what was found is how first readings differ within a level
        models = {name: _without_error(model) for name, model in models.items()}
        for name in [name for name in values if name.startswith("sigma[")]:
            values[name], errors[name] = 0.0, math.nan
    return RetentionFit(
        noise_model=models[best],
        law=best,
        values=values,
        standard_errors=errors,
        likelihoods={name: scores[name][0] / scores[name][1] for name in fits},
        models=models,
        problems=problems,
        left_out=sum(int((~has_logarithms(each)).sum()) for each in cells),
        cells=tuple(cells),
        targets_given=known,
    )


def _warn_of_zeros(cells: Sequence[Cells]) -> None:
    """Warns of targets of which many readings are 0, where a normal deviation would go on."""
    shares = {each.target: float((each.readings == 0.0).mean()) for each in cells}
    target = max(shares, key=shares.__getitem__)
    if shares[target] > _MOST_ZEROS:
        warnings.warn(
            f"{100 * shares[target]:.1f} % of the readings of target {target:g} uS are 0; the fit "
            "takes them as values of a normal deviation, and finds means and deviations that are "
            "wrong. Leave out targets of which many readings are 0",
            stacklevel=3,
        )


def _require_settings(law: str, t_0: float, t_read: float, held_out: float) -> None:
    if law != "auto" and law not in LAWS:
        raise ValueError(f"law = {law!r}: write 'auto', {', '.join(map(repr, LAWS))}")
    require_share("held_out", held_out)
    if held_out == 1.0:
        raise ValueError("held_out = 1.0: give a share below 1, so that cells are left to fit")
    require_positive_real("t_0", t_0)
    require_positive_real("t_read", t_read)


def _fitted(
    names: Iterable[str], cells: Sequence[Cells], setting: Setting, held_out: float
) -> tuple[dict[str, Fitted], dict[str, tuple[float, int]], dict[str, str]]:
    """Returns the laws fitted to all cells, held-out log densities and readings, and problems."""
    train, test = zip(*(_split(each, held_out) for each in cells), strict=True)
    fits, scores, problems = {}, {}, {}
    for name in names:
        try:
            score = LAWS[name](train, setting).score(test)
            fits[name], scores[name] = LAWS[name](cells, setting), score
        except ValueError as error:  # noqa: PERF203 - a few laws
            problems[name] = str(error)
    return fits, scores, problems


def _without_error(model: NoiseModel) -> NoiseModel:
    """Returns a model that programs exactly."""
    return model.replace(sigma=[0.0] * len(model.to_dict()["sigma"]))


def _split(cells: Cells, share: float) -> tuple[Cells, Cells]:
    """Cuts cells into a part that is fitted and one that is held out, every so many cells.

    All laws are compared by the same held-out cells. Where the power law and the exponential law
    may be fitted, it is those with positive readings alone, one at least.
    """
    every = max(2, round(1.0 / share))
    out = np.arange(len(cells.readings)) % every == 0
    good = has_logarithms(cells)
    if good.sum() < FEWEST_POSITIVE:
        return cells.of(~out), cells.of(out)
    if not (out & good).any():
        out[:] = False
        out[np.flatnonzero(good)[::every]] = True
    return cells.of(~out), cells.of(out & good)
