"""Means and variances of independent runs, beside recorded ones (see recorded_cases)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

SIGMAS = 5.0


class Moments(NamedTuple):
    """Means and variances of cells, with their standard errors.

    Attributes:
        var_error: None where a record has none.
        reach: The largest difference between a run and the mean, over all cells.
    """

    mean: Matrix
    mean_error: Matrix
    var: Matrix
    var_error: Matrix | None
    reach: float = 0.0


def of_runs(values: Matrix) -> Moments:
    """The moments of independent runs, [run, ...]."""
    runs = len(values)
    mean, var = values.mean(axis=0), values.var(axis=0, ddof=1)
    spread = np.maximum(((values - mean) ** 4).mean(axis=0) - var**2, 0.0)
    reach = float(np.abs(values - mean).max())
    return Moments(mean, np.sqrt(var / runs), var, np.sqrt(spread / runs), reach)


def of_case(case: dict[str, Any]) -> dict[str, Moments]:
    """The recorded moments; those of the corrected rule where the other simulator errs."""
    chosen = case.get("corrected", case)
    runs, found = chosen["repeats"], {}
    for name, given in chosen["expected"].items():
        mean, var = np.array(given["mean"]), np.array(given["var"])
        error = np.array(given["se_var"]) if "se_var" in given else None
        found[name] = Moments(mean, np.sqrt(var / runs), var, error)
    return found


def deviations(found: Moments, wanted: Moments) -> tuple[float, float]:
    """The largest differences of means and variances in combined standard errors.

    Weights are single precision, so that cells without noise differ by 1e-6; 1 % of a variance is
    left to cells at a bound. Where the error of a variance is not recorded, its upper limit is
    taken: no fourth moment exceeds the variance times reach^2.
    """
    assert found.var_error is not None
    mean_error = np.hypot(found.mean_error, wanted.mean_error) + 1e-6
    recorded = wanted.var_error
    if recorded is None:
        recorded = found.reach * wanted.mean_error
    var_error = np.maximum(np.hypot(found.var_error, recorded) + 1e-8, 0.01 * wanted.var)
    return (
        float((np.abs(found.mean - wanted.mean) / mean_error).max()),
        float((np.abs(found.var - wanted.var) / var_error).max()),
    )


def require_equal(found: dict[str, Moments], wanted: dict[str, Moments]) -> None:
    """Every recorded array agrees within 5 combined standard errors, in mean and variance."""
    assert wanted.keys() <= found.keys()
    off = {name: deviations(found[name], wanted[name]) for name in wanted}
    assert all(max(each) <= SIGMAS for each in off.values()), off
