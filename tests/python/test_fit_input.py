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


def test_traces_of_different_lengths_and_numbers_are_those_of_a_file(tmp_path: Path) -> None:
    traces = {"up": [UP, UP[:15], UP[:18]], "down": [UP[::-1], UP[:16][::-1]]}
    lines = ["cell,cycle,pulse,direction,weight"]
    for way, rows in traces.items():
        for cycle, row in enumerate(rows):
            lines += [f"0,{cycle} {way},{n}.0,{way},{w:.6f}" for n, w in enumerate(row)]
    path = tmp_path / "pulses.csv"
    path.write_text("\n".join(lines))
    fits = [pl.fit.device(path, models="ConstantStep")]
    ways = {way: [[*map(list, rows)]] for way, rows in traces.items()}
    fits.append(pl.fit.device(**ways, unit="weight", models="ConstantStep"))
    padded = {}
    for way, rows in traces.items():
        padded[way] = np.full((1, len(rows), 21), np.nan)
        for cycle, row in enumerate(rows):
            padded[way][0, cycle, : len(row)] = row
    fits.append(pl.fit.device(**padded, unit="weight", models="ConstantStep"))
    readings = {report.pulses.readings for _, report in fits}
    assert readings == {20 + 14 + 17 + 20 + 15}
    steps = [device.dw_min for device, _ in fits]
    assert steps == pytest.approx([0.1] * 3, rel=1e-3)


def test_numbers_as_spreadsheets_write_them(tmp_path: Path) -> None:
    path = tmp_path / "pulses.csv"
    for up, down in (("1.0", "-1.0"), ("+1", "-1"), ("Up", "DOWN")):
        rows = [f"{n}.0,{up},{w}" for n, w in enumerate(UP)]
        rows += [f"{n + 21}.0,{down},{w}" for n, w in enumerate(UP[::-1])]
        path.write_text("\n".join(["pulse,direction,weight", *rows]))
        device, _ = pl.fit.device(path, models="ConstantStep")
        assert device.dw_min == pytest.approx(0.1, rel=0.05)


def test_a_table_of_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "pulses.csv"
    rows = [f"{up},{down}" for up, down in zip(UP, UP[::-1], strict=True)]
    path.write_text("\n".join([*rows, "1.0,"]))  # one more of the first column
    device, report = pl.fit.device(path, columns=("up", "down"), unit="weight", models="LinearStep")
    assert device.dw_min == pytest.approx(0.1, rel=0.05)
    assert report.pulses.readings == 41
    save = tmp_path / "device.json"
    options = ["--columns", "up,down", "--unit", "weight", "--models", "LinearStep"]
    done = CliRunner().invoke(app, ["fit", str(path), *options, "--save", str(save)])
    assert done.exit_code == 0, done.output
    assert pl.devices.load(save).to_dict() == device.to_dict()
    path.write_text("up,down\n" + "\n".join(rows))  # the names are in the file
    _, named = pl.fit.device(path, unit="weight", models="LinearStep")
    assert named.pulses.readings == 40


@pytest.mark.parametrize("factor", [1000.0, -50.0])
def test_a_reading_far_from_all_others_is_named(factor: float) -> None:
    up, down = soft_bounds(4)
    up = up + 1.5
    up[2, 7] *= factor
    with pytest.raises(ValueError, match=r"cell '2', cycle '0 up', reading 7 is .*; leave it out"):
        pl.fit.device(up=up, down=down + 1.5)


def test_a_reading_apart_from_its_neighbours_is_noted() -> None:
    up, down = soft_bounds(4)
    down[1, 3] -= 0.9
    _, report = pl.fit.device(up=up, down=down, unit="weight", models="LinearStep")
    (note,) = (note for note in report.notes if "lies apart" in note)
    assert note.startswith(f"cell '1', trace 2, pulse 3: the reading {down[1, 3]:.4g} lies apart")
