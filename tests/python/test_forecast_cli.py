"""`pulsora forecast`: what it tells of a metrics file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pulsora.cli import app
from pulsora.forecast import forecast_loss
from pulsora.plot import plot_forecast

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["forecast", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    epochs = [{"epoch": t, "loss": 2.0 * t**-0.5, "pulses": 1e6 * t} for t in range(1, 21)]
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"experiment": {}, "epochs": epochs}))
    return path


def test_it_tells_how_long_it_takes(metrics: Path) -> None:
    code, output = run(metrics, "--target", 0.25, "--ahead", 30)  # 2 t^-1/2 = 0.25 at 64
    assert code == 0, output
    assert "loss 0.25 is expected in 44 more epochs" in output
    assert "that takes 4.4e+07 more pulses, 1e+06 per epoch" in output
    assert "after 50 it is expected at 0.2828" in output
    assert metrics.with_name("forecast.png").read_bytes().startswith(b"\x89PNG")
    assert "is reached already" in run(metrics, "--target", 10)[1]


def test_the_ensemble_adds_what_the_law_leaves_over(metrics: Path) -> None:
    code, output = run(metrics, "--ahead", 30, "--residual", "gru")
    assert code == 0, output
    losses = [2.0 * t**-0.5 for t in range(1, 21)]
    made = forecast_loss(losses, 30, residual="gru", rates=[1.0] * 50)
    assert f"after 50 it is expected at {made.expected[-1]:.4g}" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ahead", 0], "--ahead must be at least 1 (got 0)"),
        (["--target", -1], "--target must be a positive number (got -1.0)"),
        (["--residual", "lstm"], "--residual must be None, 'gru' or an Ensemble (got 'lstm')"),
        (["--level", 2], "--level must be above 0 and below 1 (got 2.0)"),
        (["--out", "no/such/f.png"], "there is no folder 'no/such'"),
        (["--out", "f.txt"], "--out = 'f.txt' must end in .png, .jpg, .jpeg, .pdf, .svg"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[object], message: str, metrics: Path
) -> None:
    code, output = run(metrics, *arguments)
    assert code == 2
    assert message in output


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    for text in ("nothing", "[]", '{"epochs": [{"epoch": 1}]}', '{"epochs": 3}'):
        path.write_text(text)
        code, output = run(path)
        assert code == 2
        assert "is no metrics.json of 'pulsora train'" in output
    path.write_bytes(b"\xff\xfe\xfa")
    assert "metrics.json is no metrics.json of 'pulsora train'" in run(path)[1]
    path.write_text('{"epochs": [{"loss": 1.0}]}')
    assert "has 1 of the 10 epochs that a forecast needs; train on by --resume" in run(path)[1]


def test_the_figure_shows_curve_expectation_and_interval() -> None:
    forecast = forecast_loss([2.0 / t for t in range(1, 21)], 10)
    (axes,) = plot_forecast(forecast, 0.05).axes
    assert [line.get_label() for line in axes.lines] == ["so far", "expected", "target"]
    assert axes.lines[1].get_xdata().tolist() == list(range(21, 31))
    assert len(axes.collections) == 1
