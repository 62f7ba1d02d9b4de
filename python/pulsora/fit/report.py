"""Results of a fit, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter.

    Attributes:
        value: The value; a tuple for a list.
        error: Its standard error; infinite if the data do not determine the value.
    """

    value: float | tuple[float, ...]
    error: float | tuple[float, ...]

    @property
    def determined(self) -> bool:
        """Whether the data determine the value."""
        return bool(np.isfinite(np.array(self.error)).all())

    def __str__(self) -> str:
        values, errors = np.atleast_1d(self.value), np.atleast_1d(self.error)
        pairs = [
            f"{value:.4g} +- {error:.1g}" if np.isfinite(error) else f"{value:.4g} (not determined)"
            for value, error in zip(values, errors, strict=True)
        ]
        return ", ".join(pairs)


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
        estimate: The numbers that the search found.
        problem: Why the fit is not to be trusted, or "".
    """

    model: str
    device: Device | None
    parameters: Mapping[str, Parameter]
    log_likelihood: float
    aic: float
    held_out: float
    estimate: Estimate
    problem: str


@dataclass(frozen=True)
class Report:
    """Results of a fit.

    Attributes:
        best: The chosen model.
        candidates: All models, the best first.
        pulses: The data, as weights.
        chosen_by: "held-out likelihood", or "AIC" if there was nothing to hold out.
        held_out: Number of readings held out.
        notes: Facts that the data do not tell.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    pulses: Pulses = field(repr=False)
    chosen_by: str
    held_out: int
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

    def rows(self) -> list[tuple[str, ...]]:
        """A row per model: name, number of parameters, differences to the best.

        The differences are in AIC and in held-out likelihood.
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
                one.problem or ("chosen" if one is best else ""),
            )
            for one in self.candidates
        ]

    def __str__(self) -> str:
        header = ("model", "numbers", "log-lik.", "AIC", "held out", "")
        rows = [header, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            f"{self.pulses.readings} readings of {len(self.pulses.cells)} cells; {self.scale}",
            *(
                "  ".join(
                    cell.ljust(width) if i == 0 else cell.rjust(width)
                    for i, (cell, width) in enumerate(zip(row, widths, strict=False))
                )
                + f"  {row[5]}".rstrip()
                for row in rows
            ),
            "AIC and held-out log-likelihood are relative to the best; chosen by " + self.chosen_by,
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
    if estimate.model.name == "ExpStep":
        settings["a"] = 0.5 * (setting.high - setting.low)
    settings |= {name: one.value for name, one in values.items() if name != "read noise"}
    return made(**settings)  # type: ignore[no-any-return]
