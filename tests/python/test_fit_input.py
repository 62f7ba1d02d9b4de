"""Input of a fit: spans, names of models, tables with other separators, noiseless readings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

import pulsora as pl
from pulsora.cli import app

if TYPE_CHECKING:
    from pathlib import Path

UP = np.linspace(-1.0, 1.0, 21)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ((0.0, np.inf), r"span = \(0, inf\) must be a lower and a higher reading"),
        ((5.0, 6.0), r"span = \(5, 6\) does not enclose the median of the readings, 0"),
        ((1.0,), "span must be two numbers"),
        ("ab", "span must be two numbers"),
    ],
)
def test_spans_that_are_none_are_refused(span: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pl.fit.device(up=UP, down=UP[::-1], span=span)  # type: ignore[arg-type]


def test_weights_that_no_device_has_are_said_to_be() -> None:
    """Some of four cells are held out; no model fitted to the other cells is a valid device."""
    up = 1e30 * np.tile(UP, (4, 1))
    with pytest.raises(ValueError, match="no model fits: ConstantStep"):
        pl.fit.device(up=up, down=-up, unit="weight", models=["ConstantStep"])


def test_one_model_may_be_named() -> None:
    _, report = pl.fit.device(up=UP, down=UP[::-1], models="ConstantStep")
    assert [one.model for one in report.candidates] == ["ConstantStep"]


def test_separators_that_are_no_commas_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pulses.csv"
    path.write_text("pulse;direction;conductance\n0;up;1,5\n")
    with pytest.raises(ValueError, match="is one column; separate columns by commas"):
        pl.fit.device(path)


def test_pictures_of_no_known_kind_are_refused_before_the_fit(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "none.csv"), "--plot", "fit.txt"])
    assert "--plot = 'fit.txt' must end in .png" in result.output


def soft_bounds(
    cells: int, bound: float = 1.0, step: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Readings without noise of equal cells, 24 pulses up from -1 and as many down."""
    ways = []
    for sign, start in ((1.0, -bound), (-1.0, 0.5)):
        weights = [start]
        for _ in range(24):
            weights.append(weights[-1] + sign * step * (1.0 - sign * weights[-1] / bound))
        ways.append(np.tile(weights, (cells, 1)))
    return ways[0], ways[1]


def test_readings_without_noise_give_the_formula_they_follow() -> None:
    up, down = soft_bounds(4)
    device, report = pl.fit.device(up=up, down=down, unit="weight", models="SoftBounds")
    assert report.best.problem == ""
    found = device.to_dict()
    expected = {"dw_min": 0.05, "up_down": 0.0, "w_max": 1.0, "w_min": -1.0, "dw_min_std": 0.0}
    expected |= dict.fromkeys(("dw_min_dtod", "up_down_dtod", "w_max_dtod", "w_min_dtod"), 0.0)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-3), name
