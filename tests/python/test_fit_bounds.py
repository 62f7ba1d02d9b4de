"""Fits where data end: bounds, directions that were hardly measured, numbers at their limits."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pulsora as pl
from conftest import ROOT
from pulsora.fit.report import Parameter


def linear_cells(
    seed: int, cells: int = 30, cycles: int = 2, read: float = 0.01
) -> tuple[np.ndarray, np.ndarray]:
    """Readings of LinearStep, simulated here: 50 pulses up and down, which cells run into bounds.

    The parameters are dw_min 0.05, its spread 0.1, dw_min_std 0.3, gamma_up 0.5, gamma_down 0.3,
    and bounds of 1.
    """
    rng = np.random.default_rng(seed)
    gain = 0.05 * (1 + 0.1 * rng.standard_normal(cells))
    w = np.full(cells, -0.98)
    traces: dict[bool, list[list[np.ndarray]]] = {True: [], False: []}
    for _ in range(cycles):
        for up in (True, False):
            rows = [w.copy()]
            for _ in range(50):
                step = gain * (1 - 0.5 * w) if up else -gain * (1 + 0.3 * w)
                w = np.clip(w + step * (1 + 0.3 * rng.standard_normal(cells)), -1.0, 1.0)
                rows.append(w.copy())
            traces[up].append(rows)
    up_, down = (np.array(traces[way]).transpose(2, 0, 1) for way in (True, False))
    up_, down = (a + read * rng.standard_normal(a.shape) for a in (up_, down))
    return up_, down


def test_cells_that_run_into_their_bounds_give_their_numbers() -> None:
    up, down = linear_cells(0)
    _, report = pl.fit.device(up=up, down=down, unit="weight", models="LinearStep")
    found = report.best.parameters
    true = {"dw_min": 0.05, "dw_min_std": 0.3, "gamma_up": 0.5, "gamma_down": 0.3, "w_max": 1.0}
    for name, value in (true | {"w_min": -1.0, "read noise": 0.01}).items():
        one = found[name]
        assert abs(np.asarray(one.value) - value) < 3.0 * np.asarray(one.error), (name, one)
        assert np.asarray(one.error) < 0.1 * abs(value), name
    assert not report.best.problem


def test_the_model_of_cells_that_run_into_their_bounds_is_as_good_as_with_the_true_bounds() -> None:
    up, down = linear_cells(1, cells=20, cycles=1)
    fits = [
        pl.fit.device(
            up=up, down=down, unit="weight", span=span, models=("ConstantStep", "LinearStep")
        )[1]
        for span in (None, (-1.0, 1.0))
    ]
    linear = [report.candidate("LinearStep").log_likelihood for report in fits]
    assert linear[0] > linear[1] - 1.0
    for report in fits:
        assert report.best.parameters["dw_min_std"].value == pytest.approx(0.3, abs=0.05)


def test_a_bound_that_no_cell_reaches_is_said_to_be_unknown() -> None:
    k = np.arange(31)
    rng = np.random.default_rng(2)
    gains = 0.03 * (1 + 0.1 * rng.standard_normal((6, 1)))
    up = -1.0 + gains * np.maximum(k, 0) + 0.005 * rng.standard_normal((6, 31))
    down = up[:, -1:] - gains * k + 0.005 * rng.standard_normal((6, 31))
    device, report = pl.fit.device(up=up, down=down, unit="weight", models="ConstantStep")
    assert not report.best.parameters["w_max"].determined
    assert not report.best.doubtful  # which is no fault of the fit
    assert device.w_max == pytest.approx(max(up.max(), down.max()), abs=0.05)
    assert any("no cell reaches its upper bound" in note for note in report.notes)


def test_readings_that_pile_up_at_a_bound_are_noted() -> None:
    k = np.arange(60)
    rng = np.random.default_rng(3)
    up = np.minimum(-1.0 + 0.06 * k, 1.0) + 0.01 * rng.standard_normal((5, 60))
    down = np.maximum(1.0 - 0.05 * k, -1.0) + 0.01 * rng.standard_normal((5, 60))
    device, report = pl.fit.device(up=up, down=down, unit="weight", models="ConstantStep")
    assert device.dw_min == pytest.approx(0.06, rel=0.02)
    assert device.w_max == pytest.approx(1.0, abs=0.005)
    assert any("pile up at the upper bound" in note for note in report.notes)


def test_no_step_is_invented_where_nothing_was_measured() -> None:
    k = np.arange(50)
    up, down = 1e-9 * (1 - np.exp(-k / 25)), 50e-9 * np.exp(-k / 25)
    _, report = pl.fit.device(up=up, down=down)
    assert report.measured["up"] == pytest.approx((-1.0, -0.966), abs=0.01)
    assert "up from -1 to -0.97 (2%)" in str(report)
    assert any("up pulses were measured from -1 to -0.966, 2%" in note for note in report.notes)
    table, _ = pl.fit.device(up=up, down=down, models="PiecewiseStep")
    weights = np.linspace(-0.6, 0.6, 13, dtype=np.float32)[:, None]
    for one in report.candidates:
        if one.device is None:
            assert "where nothing was measured" in one.problem
            continue
        tile = pl.Tile(13, 1, pl.SingleConfig(device=one.device), seed=1)
        tile.weights = weights
        assert (tile.describe_cells()["step_up"] > 1e-5).all(), one.model
    steps = np.array(table.to_dict()["piecewise_up"])
    assert steps == pytest.approx(np.full(5, steps[0]))  # the step at the outermost measured node


def test_the_curve_counts_among_close_models() -> None:
    rng = np.random.default_rng(0)
    k = np.arange(80)
    up = 0.9 * (1 - np.exp(-k / 40)) / (1 - np.exp(-2))
    up += 0.05 * rng.standard_normal(80) * np.linspace(0.2, 1, 80)
    down = up[-1] * np.exp(-k / 15) + 0.01 * rng.standard_normal(80)
    up[1:3] += 0.15
    _, report = pl.fit.device(up=up, down=down)
    least = min(max(one.curve.values()) for one in report.candidates)
    assert max(report.best.curve.values()) < 1.5 * least + 0.01
    assert not report.best.doubtful
    assert "curve" in str(report)


def test_a_wrong_curve_is_noted() -> None:
    k = np.arange(60)
    up = 1.0 - 2.0 * np.exp(-k / 10)
    _, report = pl.fit.device(up=up, down=-up, unit="weight", models="ConstantStep")
    assert min(report.best.curve.values()) > 0.05
    assert sum("is off by" in note for note in report.notes) == 2


def test_readings_beside_their_expectation_are_noted() -> None:
    """Steps of 1/10 of what is left, which steps of one size overtake, then stay behind."""
    rng = np.random.default_rng(0)
    curve = 1.0 - 2.0 * np.exp(-np.arange(64) / 10)
    up, down = (
        sign * np.tile(curve, (4, 1)) + 0.002 * rng.standard_normal((4, 64)) for sign in (1, -1)
    )
    _, report = pl.fit.device(up=up, down=down, unit="weight", models="ConstantStep")
    (low,) = (note for note in report.notes if "readings after up pulses lie" in note)
    (high,) = (note for note in report.notes if "readings after down pulses lie" in note)
    assert re.search(r"lie 1\d\.\d standard errors below their expectation on average", low)
    assert re.search(r"lie 1\d\.\d standard errors above their expectation on average", high)


def test_numbers_at_their_limits_are_told() -> None:
    rng = np.random.default_rng(0)
    k = np.arange(40)
    noise = 0.03 * rng.standard_normal(39) * np.exp(-k[:39] / 2)
    up = np.cumsum(np.r_[0.0, 0.05 * np.exp(-k[:39] / 15) + noise])
    down = up[-1] * np.exp(-k / 5) * (1 + 0.002 * rng.standard_normal(40))
    _, report = pl.fit.device(up=up, down=down, models="TableStep")
    found = report.best.parameters
    spread = np.array(found["table_std_up"].value)
    assert spread.max() / spread.min() < 21.0  # exp(3)
    assert found["table_down"].limit == (True, False, False, False, False)
    assert "(at its limit)" in str(found["table_down"])
    assert report.best.doubtful
    assert any("at the limit of the search" in note for note in report.notes)
    assert str(Parameter((0.0, 1.0, 2.0), (0.1, 0.0, np.inf), (True, False, False))) == (
        "0 (at its limit), 1, 2 (not determined)"
    )


def test_a_model_whose_numbers_the_data_determine_wins_a_tie() -> None:
    _, report = pl.fit.device(ROOT / "tests" / "data" / "pulses.csv")
    exponential = report.candidate("ExpStep")
    assert exponential.doubtful
    assert exponential.aic < report.best.aic
    assert report.best.model == "SoftBounds"
    assert not report.best.doubtful
