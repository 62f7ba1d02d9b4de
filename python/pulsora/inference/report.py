"""The report of an evaluation: a metric over times, chips and programmings."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora._internal.files import replace_file
from pulsora._internal.text_tables import aligned
from pulsora._internal.times import described

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["InferenceReport", "plot"]


@dataclass(frozen=True, eq=False)
class InferenceReport:
    """A metric of a model for each time after programming and each programming.

    `report - other` is the difference of two reports of the same times, chips and programmings,
    paired: its standard error is that of the differences.

    Attributes:
        times: Seconds since the end of programming.
        programmings: Number of the programming of each column of values.
        values: The metric [times, programmings of all chips].
        metric: Name of the metric.
        chips: Number of the chip of each column; empty if there is one chip.
    """

    times: tuple[float, ...]
    programmings: tuple[int, ...]
    values: NDArray[np.float64]
    metric: str = "accuracy"
    chips: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.chips)) < 2:
            object.__setattr__(self, "chips", ())

    def by_chip(self) -> NDArray[np.float64]:
        """Mean over the programmings of each chip, [times, chips]."""
        chips = np.array(self.chips or [0] * len(self.programmings))
        return np.stack([self.values[:, chips == c].mean(axis=1) for c in np.unique(chips)], axis=1)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over programmings, for each time."""
        found: NDArray[np.float64] = self.values.mean(axis=1)
        return found

    @property
    def std(self) -> NDArray[np.float64]:
        """Standard deviation over programmings (n - 1), for each time; NaN for a single one."""
        if len(self.programmings) == 1:
            return np.full(len(self.times), math.nan)
        found: NDArray[np.float64] = self.values.std(axis=1, ddof=1)
        return found

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard error of the mean, for each time."""
        return self.std / math.sqrt(len(self.programmings))

    def __sub__(self, other: InferenceReport) -> InferenceReport:
        """The paired difference.

        Raises:
            ValueError: If times, programmings or metrics differ.
        """
        if not isinstance(other, InferenceReport):
            return NotImplemented
        for name in ("times", "programmings", "metric", "chips"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"the reports have {name} {mine} and {theirs}; a difference needs the same"
                )
        difference = self.values - other.values
        return InferenceReport(self.times, self.programmings, difference, self.metric, self.chips)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("time", self.metric, "std", "least", "most")]
        rows += [
            (described(time), *(f"{number:.4f}" for number in numbers))
            for time, *numbers in zip(
                self.times,
                self.mean,
                self.std,
                self.values.min(axis=1),
                self.values.max(axis=1),
                strict=True,
            )
        ]
        of = f" of {len(set(self.chips))} chips" if self.chips else ""
        return f"{aligned(rows)}\n{len(self.programmings)} programmings{of}"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, what from_dict() and JSON take."""
        return {
            "metric": self.metric,
            "times": list(self.times),
            "programmings": list(self.programmings),
            "values": self.values.tolist(),
        } | ({"chips": list(self.chips)} if self.chips else {})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> InferenceReport:
        """The report that to_dict() described.

        Raises:
            ValueError: If entries are missing or of other sizes.
        """
        try:
            times = tuple(map(float, values["times"]))
            programmings = tuple(map(int, values["programmings"]))
            found = np.array(values["values"], dtype=np.float64)
            metric = str(values["metric"])
            chips = tuple(map(int, values.get("chips", ())))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"these values are no report: {error!r}") from None
        if found.shape != (len(times), len(programmings)):
            raise ValueError(
                f"values have shape {found.shape}, but there are {len(times)} times and "
                f"{len(programmings)} programmings"
            )
        if chips and len(chips) != len(programmings):
            raise ValueError(f"there are {len(chips)} chips for {len(programmings)} programmings")
        return cls(times, programmings, found, metric, chips)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report to a file of JSON."""
        replace_file(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> InferenceReport:
        """Reads a report that save() wrote.

        Raises:
            ValueError: If the file holds no report.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"path = '{path}' holds no report ({error}); give a file of report.save(path)"
            ) from None

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws mean, one standard deviation, and single programmings over time (`plot`)."""
        return plot({self.metric: self}, path)


def plot(
    reports: Mapping[str, InferenceReport], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draws reports: mean, a band of one standard deviation, and single programmings over time.

    Args:
        reports: Reports by the name that the legend gives them.
        path: File for the figure; None writes none.

    Returns:
        The figure, which a notebook shows. Needs matplotlib.
    """
    from pulsora.inference.figure import plot_reports  # noqa: PLC0415 - matplotlib takes a second

    figure = plot_reports(reports)
    if path is not None:
        figure.savefig(path, dpi=120, metadata={"Software": None})
    return figure
