"""Results of a fit, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pulsora import devices
from pulsora.fit.likelihood import filtered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from pulsora.devices import Device
    from pulsora.fit.estimate import Estimate
    from pulsora.fit.pulses import Pulses, Scale

__all__ = ["Candidate", "Parameter", "Report", "device_of"]

_BOUNDS = ("w_max", "w_min")


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter.

    Attributes:
        value: The value; a tuple for a list.
        error: Its standard error; infinite if the data do not determine the value.
        limit: Whether the value is the least or the largest that the model admits.
    """

    value: float | tuple[float, ...]
    error: float | tuple[float, ...]
    limit: bool | tuple[bool, ...] = False

    @property
    def determined(self) -> bool:
        """Whether the data determine the value, or take it to its limit."""
        return bool((np.isfinite(self.error) | np.asarray(self.limit)).all())

    @property
    def at_limit(self) -> bool:
        """Whether the value, or one of a list, is at its limit."""
        return bool(np.any(self.limit))

    def __str__(self) -> str:
        values, errors, limits = np.broadcast_arrays(self.value, self.error, self.limit)
        return ", ".join(map(_in_words, values.flat, errors.flat, limits.flat))


def _in_words(value: float, error: float, limit: bool) -> str:
    if limit:
        return f"{value:.4g} (at its limit)"
    if error == 0.0:  # by convention
        return f"{value:.4g}"
    return f"{value:.4g} +- {error:.1g}" if np.isfinite(error) else f"{value:.4g} (not determined)"


@dataclass(frozen=True)
class Candidate:
    """One fitted model.

    Attributes:
        model: Name of the model.
        device: The device, or None if there is none (see `problem`).
        parameters: Fitted parameters by name, including "read noise" (in weight).
        log_likelihood: Of all readings.
        aic: Akaike's criterion: twice the number of parameters minus twice the log-likelihood.
        held_out: Log-likelihood of the readings that were held out, or NaN if none were.
        curve: For "up" and "down", how far the mean cell is from the mean readings: root mean
            square over all pulses, from the first reading of each trace on, relative to the range
            of the weights.
        estimate: The numbers that the search found.
        problem: Why the fit is not to be trusted, or "".
    """

    model: str
    device: Device | None
    parameters: Mapping[str, Parameter]
    log_likelihood: float
    aic: float
    held_out: float
    curve: Mapping[str, float]
    estimate: Estimate
    problem: str

    @property
    def doubtful(self) -> bool:
        """Whether the search ended early or at a limit, or the data do not determine a number.

        A hard bound that no cell reaches does not count. `dw_min` counts as undetermined from an
        error of half its value on.
        """
        own = {name: one for name, one in self.parameters.items() if name not in _BOUNDS}
        vague = any(one.at_limit or not one.determined for one in own.values())
        step = own["dw_min"]
        coarse = bool(np.asarray(step.error) > 0.5 * np.asarray(step.value))
        return bool(self.problem) or vague or coarse


@dataclass(frozen=True)
class Report:
    """Results of a fit.

    Attributes:
        best: The chosen model.
        candidates: All models, the best first.
        pulses: The data, as weights.
        chosen_by: "held-out likelihood", or "AIC" if there was nothing to hold out.
        held_out: Number of readings held out.
        measured: For "up" and "down", the lowest and the highest weight between which pulses were
            measured.
        notes: Facts that the data do not tell.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    pulses: Pulses = field(repr=False)
    chosen_by: str
    held_out: int
    measured: Mapping[str, tuple[float, float]]
    notes: tuple[str, ...]

    @property
    def scale(self) -> Scale:
        """Conversion of readings to weights."""
        return self.pulses.scale

    @property
    def read_noise(self) -> Parameter:
        """Standard deviation of the noise of one reading, in weight; no property of the device."""
        return self.best.parameters["read noise"]

    def residuals(self, model: str = "") -> NDArray[np.float64]:
        """Readings minus the expectations of the best (or another) model, in standard deviations.

        They are standard normals, independent of one another, if the model is right.

        Args:
            model: Which model; by default the best.

        Returns:
            [steps, cells], as `pulses.weights`; NaN where there is no such reading.

        Raises:
            ValueError: if the model was not fitted.
        """
        chosen = self.candidate(model) if model else self.best
        one = chosen.estimate
        return filtered(one.model, one.setting, one.named(), self.pulses).residuals

    def candidate(self, model: str) -> Candidate:
        """The candidate with this name.

        Raises:
            ValueError: if the model was not fitted.
        """
        for one in self.candidates:
            if one.model == model:
                return one
        names = ", ".join(one.model for one in self.candidates)
        raise ValueError(f"model {model!r} was not fitted; there are {names}")

    def plot(self) -> Figure:
        """Readings and model, steps over the weight, and residuals."""
        from pulsora.fit.figure import plot_fit  # noqa: PLC0415 - matplotlib takes a second

        best = self.best
        return plot_fit(self.pulses, best.model, best.estimate, self.residuals())

    columns: ClassVar = ("model", "numbers", "log-lik.", "AIC", "held out", "curve", "")
    """Names of the columns of `rows`."""

    def data(self) -> list[str]:
        """Lines about the data: their number, their scale, and the range of each direction."""
        low, high = self.pulses.bounds
        ranges = [
            f"{way} from {start:.2g} to {end:.2g} ({(end - start) / (high - low):.0%})"
            for way, (start, end) in self.measured.items()
        ]
        return [
            f"{self.pulses.readings} readings of {len(self.pulses.cells)} cells; {self.scale}",
            f"pulses measured {', '.join(ranges)} of the range",
        ]

    def legend(self) -> str:
        """A line that explains the columns of `rows`."""
        return f"AIC, held out: relative to the best; by {self.chosen_by}; curve: up, down"

    def rows(self) -> list[tuple[str, ...]]:
        """A row per model, for a table with the columns `Report.columns`.

        AIC and the held-out likelihood are differences to the best.
        """
        best = self.best
        lowest = min(one.aic for one in self.candidates)
        return [
            (
                one.model,
                str(len(one.estimate.names)),
                f"{one.log_likelihood:.1f}",
                f"{one.aic - lowest:.1f}",
                "-" if np.isnan(one.held_out) else f"{one.held_out - best.held_out:.1f}",
                " ".join(f"{100.0 * off:.1f}" for off in one.curve.values()) + " %",
                one.problem or ("chosen" if one is best else ""),
            )
            for one in self.candidates
        ]

    def __str__(self) -> str:
        rows = [self.columns, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = [
            *self.data(),
            *(
                "  ".join(
                    cell.ljust(width) if i == 0 else cell.rjust(width)
                    for i, (cell, width) in enumerate(zip(row, widths, strict=False))
                )
                + f"  {row[6]}".rstrip()
                for row in rows
            ),
            self.legend(),
            "",
            self.best.model,
            *(f"  {name:15} {value}" for name, value in self.best.parameters.items()),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def device_of(estimate: Estimate, values: Mapping[str, Parameter]) -> Device:
    """The device that an estimate describes; spreads that were not fitted are 0.

    Raises:
        ConfigError: if the numbers make no device.
    """
    setting = estimate.setting
    made = getattr(devices, estimate.model.name)
    settings: dict[str, Any] = {name: 0.0 for name in made().to_dict() if name.endswith("_dtod")}
    settings |= {"w_max": setting.high, "w_min": setting.low} | dict(estimate.model.fixed)
    settings |= {name: one.value for name, one in values.items() if name != "read noise"}
    return made(**settings)  # type: ignore[no-any-return]
