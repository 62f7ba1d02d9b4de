"""Devices from measured pulses: what was simulated is found again, and bad data are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from typer.testing import CliRunner

import pulsora as pl
from conftest import ROOT
from pulse_data import measured
from pulsora.cli.main import app
from pulsora.fit.arrays import traces_of
from pulsora.fit.estimate import Estimate
from pulsora.fit.likelihood import filtered
from pulsora.fit.models import MODELS
from pulsora.fit.pulses import pulses_of
from pulsora.fit.report import Parameter, device_of
from pulsora.fit.setting import Setting
from pulsora.fit.table import read_traces

if TYPE_CHECKING:
    from pathlib import Path

# Cells of a simulation start at the mean bound, which some must confine.
pytestmark = pytest.mark.filterwarnings("ignore:.*outside the bounds of their cells")

CSV = ROOT / "tests" / "data" / "pulses.csv"
SETTING = Setting(-0.8, 1.2, 0.01)
NUMBERS: dict[str, dict[str, float]] = {
    "ConstantStep": {"log_up": 0.3, "log_down": 0.1},
    "LinearStep": {"log_up": 0.3, "log_down": 0.5, "gamma_up": 0.4, "gamma_down": -0.3},
    "SoftBounds": {"log_up": 0.3, "log_down": 0.5, "log_high": 0.1, "log_low": 0.2},
    "ExpStep": {
        "log_up": 0.3, "log_down": 0.1, "slope_up": -0.4, "slope_down": -0.2,
        "log_rate_up": 0.3, "log_excess_down": 0.5,
    },
    "PowStep": {
        "log_up": 0.3, "log_down": 0.1, "log_high": 0.1, "log_low": 0.2,
        "log_gamma_up": 0.4, "log_gamma_down": -0.2,
    },
    "PiecewiseStep": {
        f"{way}_{i}": 1.0 + 0.3 * i * (-1) ** i for way in ("up", "down") for i in range(5)
    },
    "TableStep": {
        **{f"{way}_{i}": 1.5 + 0.3 * i * (-1) ** i for way in ("up", "down") for i in range(5)},
        "noise_up": 0.3, "noise_down": -0.2,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_the_formula_of_a_fit_is_that_of_the_device(name: str) -> None:
    model = MODELS[name]
    numbers = NUMBERS[name] | {"noise": -0.3, "read": 1.0}
    size = len(numbers)
    one = Estimate(
        model,
        SETTING,
        tuple(numbers),
        np.array(list(numbers.values())),
        0.0,
        np.eye(size),
        converged=True,
    )
    values = {
        key: Parameter(tuple(value) if value.ndim else float(value), 0.0)
        for key, (value, _) in one.natural().items()
    }
    device = device_of(one, values)
    assert device.dw_min_std == pytest.approx(0.3)
    assert values["read noise"].value == pytest.approx(
        0.01 * 1.0001**0.5
    )  # with the least there is
    weights = np.linspace(-0.7, 1.1, 37)
    tile = pl.Tile(37, 1, pl.SingleConfig(device=device))
    tile.weights = weights.astype(np.float32)[:, None]
    cells = tile.describe_cells()
    t = {key: value[:, None] for key, value in one.named().items()}
    none = {key: np.zeros((1, 1)) for key in model.effects}
    for up, seen in ((True, cells["step_up"]), (False, -cells["step_down"])):
        step = np.broadcast_to(model.step(t, none, SETTING, weights[None], up), (1, 37))
        np.testing.assert_allclose(seen[:, 0], step[0], atol=1.5e-7)
    low, high = model.bounds(t, none, SETTING)
    assert cells["w_min"][0, 0] == pytest.approx(float(np.squeeze(low)), rel=1e-6)
    assert cells["w_max"][0, 0] == pytest.approx(float(np.squeeze(high)), rel=1e-6)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_the_filter_is_exact_where_everything_is_normal(spread: float) -> None:
    # Constant steps far from the bounds: readings of a cell are jointly normal, given the first.
    # With a spread between cells this holds without cycle noise, which would scale with the gain.
    noise, read, dw = (0.0, 0.5, 0.01) if spread else (0.4, 0.5, 0.01)
    rng = np.random.default_rng(0)
    n = 12
    up = np.cumsum(rng.normal(dw, 0.01, (3, n + 1)), axis=1)
    down = up[:, -1:] - np.cumsum(rng.normal(dw, 0.01, (3, n + 1)), axis=1)
    pulses = pulses_of(traces_of(up, down), "weight", (-5.0, 5.0))
    setting = Setting(-5.0, 5.0, dw)
    t = {
        "log_up": 0.2,
        "log_down": 0.0,
        "noise": noise,
        "read": read,
        "gain": spread,
        "asymmetry": 0.0,
    }
    found = filtered(
        MODELS["ConstantStep"], setting, {k: np.array([v]) for k, v in t.items()}, pulses
    )
    steps = dw * np.exp(0.2), -dw
    r2 = (read**2 + 0.01**2) * dw**2  # with the least that a reading has
    for cell in range(3):
        mean, blocks, gains = [], [], []
        for values, step in ((up[cell], steps[0]), (down[cell], steps[1])):
            k = np.arange(1, n + 1)
            mean.append(values[0] + k * step)
            # The first reading's own noise is common to all that follow it.
            common = r2 + (noise * step) ** 2 * np.minimum.outer(k, k)
            blocks.append(common + r2 * np.eye(n))
            gains.append(spread * steps[0] * k * np.sign(step))
        zero = np.zeros((n, n))
        covariance = np.block([[blocks[0], zero], [zero, blocks[1]]])
        covariance += np.multiply.outer(np.concatenate(gains), np.concatenate(gains))
        values = np.concatenate([up[cell, 1:], down[cell, 1:]])
        exact = multivariate_normal.logpdf(values, np.concatenate(mean), covariance)
        assert found.log_likelihood[0, cell] == pytest.approx(exact, rel=1e-6)


COMMON = {"dw_min_std": 0.3, "dw_min_dtod": 0.2, "up_down": 0.15, "up_down_dtod": 0.05}
HARD = {"w_max": 1.0, "w_min": -1.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
TRUTHS: dict[str, dict[str, Any]] = {
    "ConstantStep": {"dw_min": 0.02, **COMMON, **HARD},
    "LinearStep": {
        "dw_min": 0.03, "gamma_up": 0.5, "gamma_down": 0.3, "gamma_up_dtod": 0.1,
        "gamma_down_dtod": 0.1, **COMMON, **HARD,
    },
    "SoftBounds": {
        "dw_min": 0.04, **COMMON, **HARD, "w_max_dtod": 0.1, "w_min_dtod": 0.1,
    },
}  # fmt: skip


def errors_of_fit(model: str, truth: dict[str, Any], seed: int) -> dict[str, float]:
    """Errors of all fitted parameters, in standard errors."""
    device = getattr(pl.devices, model)(**truth)
    up, down = measured(device, cells=30, seed=seed)
    _, report = pl.fit.device(up=up, down=down, unit="weight", models=[model])
    found = report.candidate(model).parameters
    true = device.to_dict() | {"read noise": 0.02}
    assert set(found) >= {"dw_min", "dw_min_std", "dw_min_dtod", "up_down", "w_max", "w_min"}
    return {k: abs(v.value - true[k]) / v.error for k, v in found.items()}  # type: ignore[operator]


@pytest.mark.parametrize("model", TRUTHS)
def test_parameters_are_recovered(model: str) -> None:
    errors = errors_of_fit(model, TRUTHS[model], seed=6)
    assert max(errors.values()) < 3.0, errors


@pytest.mark.nightly
@pytest.mark.parametrize("model", TRUTHS)
def test_parameters_are_recovered_in_97_of_100_cases(model: str) -> None:
    cases = [errors_of_fit(model, TRUTHS[model], seed) for seed in range(100)]
    for name in cases[0]:
        within = sum(case[name] < 3.0 for case in cases)
        assert within >= 97, (name, within)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "pulses"), [("EcRam", 600), ("SixT1C", 500)])
def test_published_parameters_are_recovered_from_the_response_they_give(
    preset: str, pulses: int
) -> None:
    # Only numbers of fits are published, so these are responses of cells simulated with the
    # numbers.
    device = getattr(pl.devices, preset)(write_noise_std=0.0)
    up, down = measured(device, cells=6, pulses=pulses, read=0.002)
    made, report = pl.fit.device(
        up=up, down=down, unit="weight", span=(device.w_min, device.w_max), models=["LinearStep"]
    )
    assert made.model == "LinearStep"
    for name in ("dw_min", "gamma_up", "gamma_down", "dw_min_std", "up_down"):
        found = report.best.parameters[name]
        assert (
            abs(found.value - device.to_dict()[name]) < 3.0 * found.error  # type: ignore[operator]
        ), (name, found)


def test_the_model_that_made_the_data_is_chosen() -> None:
    up, down = measured(pl.devices.SoftBounds(**TRUTHS["SoftBounds"]), pulses=100)
    device, report = pl.fit.device(
        up=up, down=down, models=["ConstantStep", "PiecewiseStep", "SoftBounds"]
    )
    assert device.model == report.best.model == "SoftBounds"
    assert report.chosen_by == "held-out likelihood"
    assert report.held_out == 6 * 200
    assert [one.model for one in report.candidates][-1] == "ConstantStep"
    low, high = min(up.min(), down.min()), max(up.max(), down.max())
    assert report.scale.offset == pytest.approx(0.5 * (low + high))
    assert report.scale.factor == pytest.approx(0.5 * (high - low))
    assert device.dw_min * report.scale.factor == pytest.approx(0.04, rel=0.2)
    # Errors of the right model are standard normals: five standard errors.
    left = report.residuals()
    left = left[np.isfinite(left)]
    assert abs(left.mean()) < 5 / np.sqrt(left.size)
    assert abs(left.std() - 1.0) < 5 / np.sqrt(2 * left.size)
    # Errors of a wrong model depend on the weight.
    wrong, weights = report.residuals("ConstantStep"), report.pulses.weights
    seen = (report.pulses.direction == 1) & np.isfinite(wrong)
    assert abs(np.corrcoef(wrong[seen], weights[seen])[0, 1]) > 5 / np.sqrt(seen.sum())
    with pytest.raises(ValueError, match="model 'ExpStep' was not fitted; there are SoftBounds"):
        report.residuals("ExpStep")
    for line in str(report).splitlines()[1:]:
        assert len(line) <= 100


def test_a_table_follows_noise_that_depends_on_the_weight() -> None:
    w = np.linspace(-1.0, 1.0, 5)
    steps = np.array([0.06, 0.05, 0.045, 0.03, 0.01])
    true = pl.devices.from_table(
        w, steps, steps[::-1], std_up=[0.03, 0.02, 0.015, 0.01, 0.005], std_down=[0.015] * 5
    )
    up, down = measured(true, cells=10, read=0.005)
    device, report = pl.fit.device(
        up=up, down=down, unit="weight", span=(-1, 1), models=["TableStep"]
    )
    found = report.best.parameters
    dw_min = np.array(found["dw_min"].value)
    for name in ("table_up", "table_down"):
        nodes = dw_min * np.array(found[name].value)
        wanted = steps if name == "table_up" else steps[::-1]
        # The standard errors are of nodes relative to dw_min.
        assert (
            abs(nodes - wanted) < 3.5 * dw_min * np.array(found[name].error) + 0.1 * wanted
        ).all()
    tile = pl.Tile(5, 1, pl.SingleConfig(device=device))
    assert tile.describe_cells()["step_up"].shape == (5, 1)


def test_few_cells_are_fitted_without_spreads_and_the_report_says_so() -> None:
    up, down = measured(pl.devices.ConstantStep(**TRUTHS["ConstantStep"]), cells=1)
    device, report = pl.fit.device(up=up, down=down, models=["ConstantStep"])
    assert device.dw_min_dtod == device.up_down_dtod == 0.0
    assert report.chosen_by == "AIC"
    text = str(report)
    assert "measure at least 3 cells" in text
    assert "nothing was held out" in text


def test_skipped_readings_are_pulses_all_the_same(tmp_path: Path) -> None:
    up, down = measured(pl.devices.ConstantStep(**TRUTHS["ConstantStep"]), cells=6)
    lines = ["cell,cycle,pulse,direction,weight,comment"]
    for cell in range(6):
        for name, values in (("up", up[cell]), ("down", down[cell])):
            lines += [f"{cell},{name},{n},{name},{values[n]:.6f},x" for n in range(0, 61, 3)]
    path = tmp_path / "thin.csv"
    path.write_text("\n".join(lines))
    traces, unit = read_traces(path)
    assert unit == "weight"
    assert len(traces) == 12
    assert np.isnan(traces[0].values).sum() == 40
    _, report = pl.fit.device(path, models=["ConstantStep"], span=(-1.0, 1.0))
    found = report.best.parameters["dw_min"]
    assert abs(found.value - 0.02) < 3.0 * found.error  # type: ignore[operator]


UP = np.linspace(-0.9, 0.9, 30) + 0.01 * np.sin(np.arange(30))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either path, or up and down"),
        ({"up": UP}, "up or down is missing"),
        ({"path": "x.csv", "up": UP}, "give either path, or up and down"),
        ({"up": UP, "down": UP[:1]}, "there are 0 down pulses; measure at least 4"),
        ({"up": UP[:2], "down": UP[::-1]}, "there are 1 up pulses; measure at least 4"),
        ({"up": 0 * UP, "down": 0 * UP}, "all readings are 0; measure a cell that answers"),
        (
            {"up": np.where(abs(UP) < 0.1, np.nan, UP), "down": UP[::-1]},
            r"up\[0\] has nan at reading 13; NaN may only fill up the end",
        ),
        ({"up": ["a", "b"], "down": UP}, r"up\[0\] is no trace of numbers"),
        ({"up": np.zeros((1, 1, 1, 2)), "down": UP}, "up has 4 dimensions; give .cells, cycles"),
        ({"up": [[], []], "down": UP[::-1]}, r"up\[0\] has no readings; leave the trace out"),
        ({"up": UP, "down": UP[::-1], "columns": ("up",)}, "columns names those of a file"),
        ({"up": UP[::-1], "down": UP}, "check which direction is which"),
        ({"up": UP + 3, "down": UP[::-1] + 3, "unit": "weight"}, "do not enclose 0"),
        ({"up": UP, "down": UP[::-1], "unit": "siemens"}, "unit must be 'conductance' or 'weight'"),
        ({"up": UP, "down": UP[::-1], "span": (1.0, -1.0)}, r"span = \(1, -1\) must be a lower"),
        ({"up": UP, "down": UP[::-1], "models": ["SoftBound"]}, "did you mean 'SoftBounds'"),
        ({"up": UP, "down": UP[::-1], "models": []}, "models is empty"),
    ],
)
def test_data_to_which_nothing_can_be_fitted_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pl.fit.device(**arguments)


HEADER = "cell,cycle,pulse,direction,conductance\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: column pulse is missing .there are: none"),
        ("cell,pulse,direction\n", "line 1: column conductance .or weight. is missing"),
        ("pulse,direction,weight,conductance\n", "line 1: columns conductance and weight"),
        ("pulse,pulse,direction,weight\n", "line 1: column pulse is there twice"),
        (HEADER, "no rows below the first line"),
        (HEADER + "a,b,0,up\n", "line 2: 4 columns, and 5 are named"),
        (HEADER + "a,b,x,up,1\n", "line 2, column pulse: 'x' is no whole number"),
        (
            HEADER + "a,b,0,up,1\n\na,b,1,up,1..2\n",
            "line 4, column conductance: '1..2' is no number",
        ),
        (HEADER + "a,b,0,up,1\na,b,1,up,nan\n", "line 3, column conductance: nan is no reading"),
        (HEADER + "a,b,0,up,1\na,b,1,up,\n", "conductance: an empty cell is no reading; leave out"),
        (HEADER + "a,b,0.5,up,1\n", "line 2, column pulse: '0.5' is no whole number"),
        ("1e-6,1e-6\n2e-6,2e-6\n", "line 1: there are numbers in place of the names of columns"),
        (HEADER + "a,b,0,up,1\na,b,1,sideways,1\n", "line 3, column direction: 'sideways'; write"),
        (HEADER + "a,b,0,,1\na,b,1,,1\n", "line 3, column direction: ''; write up or down"),
        (HEADER + "a,b,0,up,1\na,b,0,up,1\n", "line 3, column pulse: 0 after 0; numbers rise"),
        (HEADER + "a,b,0,up,1\na,b,99999,up,1\n", "line 3, column pulse: 99999 after 0"),
        (HEADER + 'a,b,0,"up,1\n', "no CSV file"),
    ],
)
def test_errors_in_a_file_name_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pulses.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        pl.fit.device(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pulses.csv"
    with pytest.raises(FileNotFoundError, match=rf"path = '{path}' cannot be .*give a CSV file"):
        pl.fit.device(path)
    with pytest.raises(IsADirectoryError, match="give a CSV file"):
        pl.fit.device(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"path = 'absent\.toml' .*give a file of settings"):
        pl.devices.load("absent.toml")


def test_the_command_fits_draws_and_saves(tmp_path: Path) -> None:
    plot, save = tmp_path / "fit.png", tmp_path / "device.json"
    options = ["--plot", str(plot), "--save", str(save), "--models", "SoftBounds,ConstantStep"]
    done = CliRunner().invoke(app, ["fit", str(CSV), *options], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "640 readings of 8 cells; weight = (conductance - 20.145) / 14.085" in done.output
    rows = [line for line in done.output.splitlines() if "SoftBounds" in line]
    assert "chosen" in rows[0]
    assert all(len(line) <= 80 for line in done.output.splitlines() if "written" not in line)
    assert plot.stat().st_size > 10_000
    device = pl.devices.load(save)
    assert device.model == "SoftBounds"
    assert device.dw_min == pytest.approx(0.062, abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nothing.csv"], "nothing.csv"),
        ([str(CSV), "--save", "device.txt"], "--save = 'device.txt' must end in .toml or .json"),
        ([str(CSV), "--models", "Sof"], "none that can be fitted"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(options: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["fit", *options])
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_without_scipy_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['scipy'] = None\n"
        "import pulsora as pl\npl.fit.device(up=[1], down=[1])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (
        "ImportError: pulsora.fit needs SciPy; install it with pip install 'pulsora[fit]'"
        in done.stderr
    )
