"""The ensemble on the power law of a loss curve: features, continuation, refusals, by NumPy."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from conftest import ROOT
from forecast_training import STEPS as TRAINER_STEPS
from forecast_training import batches, make
from pulsora.forecast import Ensemble, forecast_loss, rollout
from pulsora.forecast.loss_curve.power_law import PowerLaw
from pulsora.forecast.loss_curve.residual import FEATURES, STEPS, features, trained
from pulsora.forecast.plan import Place

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = ROOT / "scripts" / "train_loss_forecaster.py"


def curve(count: int, noise: float = 0.03, seed: int = 0) -> np.ndarray:
    steps = np.arange(1, count + 1)
    errors = np.random.default_rng(seed).standard_normal(count)
    return (0.3 + 2.0 * steps**-0.6) * np.exp(noise * errors)


def law_of(logs: np.ndarray) -> tuple[float, float, float]:
    """Slope, height at step 1 and standard deviation of the line through the last two thirds."""
    first = len(logs) // 3
    x = np.log(np.arange(first + 1, len(logs) + 1))
    slope, height = np.polyfit(x, logs[first:], 1)
    rest = logs[first:] - height - slope * x
    return slope, height, np.sqrt((rest**2).sum() / (len(x) - 2))


def times(count: int) -> list[float]:
    return [count * 4.0 ** (j / 24) for j in range(1, 25)]


@pytest.mark.parametrize("count", [10, 37, 200])
def test_features_are_those_of_their_definition(count: int) -> None:
    logs = np.log(curve(count))
    rates = np.linspace(1.0, 0.2, 3 * count)
    slope, height, _ = law_of(logs)
    unit = 0.1
    past = (logs - height - slope * np.log(np.arange(1, count + 1))) / unit
    expected = [0.0]
    edges = [count * 12.0 ** (-k / 32) for k in range(32, -1, -1)]
    for left, right in itertools.pairwise(edges):
        total = 0.0  # of a curve that is constant from step to step
        for step in range(count):
            total += past[step] * max(0.0, min(right, step + 1) - max(left, step))
        expected.append(total / (right - left))
    expected += [slope, np.log10(law_of(logs)[2] + 1e-3), np.diff(past).std() / np.sqrt(2.0)]
    expected += [np.log10(count) / 3.0, (height + slope * np.log(count)) / 3.0]
    ratio = [
        rates[round(count * share) - 1] / rates[count - 1] for share in (0.125, 0.25, 0.5, 0.75)
    ]
    ratio += [rates[min(round(t), 3 * count) - 1] / rates[count - 1] for t in times(count)[1::2]]
    expected += [np.log2(r) / 4.0 for r in ratio]
    expected += [1.0]
    row = features(logs, PowerLaw.fitted(logs), rates)
    assert row.shape == (FEATURES,)
    assert row.dtype == np.float32
    np.testing.assert_allclose(row[: len(expected)], np.clip(expected, -10, 10), atol=2e-6)
    assert not row[len(expected) :].any()
    unknown = features(logs, PowerLaw.fitted(logs), None)
    assert not unknown[38:55].any()
    np.testing.assert_array_equal(unknown[:38], row[:38])


def test_forecasts_add_what_the_ensemble_continues() -> None:
    whole = curve(60)
    rates = np.linspace(1.0, 0.1, 400)
    forecast = forecast_loss(whole, 340, residual="gru", rates=rates)
    alone = forecast_loss(whole, 340)
    logs = np.log(whole)
    row = features(logs, PowerLaw.fitted(logs), rates)
    mean = 0.1 * rollout(trained(), row[None], STEPS).expected[0].astype(np.float64)
    added = np.interp(forecast.steps, [60.0, *times(60)], [0.0, *mean])
    np.testing.assert_allclose(forecast.expected, alone.expected * np.exp(added), rtol=1e-12)
    assert added[-1] == mean[-1]  # beyond four times the length the last one stays
    assert forecast.exponent == alone.exponent
    np.testing.assert_allclose(forecast.at(forecast.steps)[0], forecast.lower, rtol=1e-12)
    assert (forecast.lower < forecast.expected).all()
    assert (forecast.expected < forecast.upper).all()
    assert forecast_loss(whole, 340, residual=trained(), rates=rates).left == forecast.left


def test_an_ensemble_that_adds_nothing_leaves_the_law() -> None:
    good = trained().arrays()
    idle = Ensemble(**(good | {"heads": np.zeros_like(good["heads"])}))
    whole = curve(40)
    np.testing.assert_array_equal(
        forecast_loss(whole, 20, residual=idle).lower, forecast_loss(whole, 20).lower
    )


def test_widths_come_from_earlier_forecasts_of_the_same_kind() -> None:
    """The quantile of the errors of law and ensemble at every earlier part of the curve."""
    whole, ahead = curve(30), 15
    logs = np.log(whole)
    scores = []
    for part in range(6, 30):
        law = PowerLaw.fitted(logs[:part])
        mean = 0.1 * rollout(trained(), features(logs[:part], law, None)[None], STEPS).expected[0]
        end = min(part + max(1, round(ahead * part / 30)), 30)
        steps = np.arange(part + 1.0, end + 1.0)
        added = np.interp(steps, [part, *times(part)], [0.0, *mean])
        scores += (np.abs(logs[part:end] - law.at(steps) - added) / law.error(steps)).tolist()
    width = np.sort(scores)[int(np.ceil((len(scores) + 1) * 0.9)) - 1]
    made = forecast_loss(whole, ahead, residual="gru")
    half = np.log(made.upper / made.expected)
    np.testing.assert_allclose(half, width * PowerLaw.fitted(logs).error(made.steps), rtol=1e-5)


def test_a_trainer_knows_its_learning_rates() -> None:
    trainer = make(forecaster="linear", guard=False)
    torch.manual_seed(7)
    trainer.train(batches, passes=60, progress=False)
    made = trainer.forecast(residual="gru")
    count = len(made.observed) + len(made.steps)
    steps = np.array(
        [Place(trainer.plan).step_of(trainer.plan.block * n - 1) for n in range(1, count + 1)]
    )
    rates = 0.05 * 0.5 * (1.0 + np.cos(np.pi * steps / TRAINER_STEPS))
    again = forecast_loss(made.observed, len(made.steps), residual="gru", rates=rates)
    np.testing.assert_allclose(made.expected, again.expected, rtol=1e-4)
    assert trainer.state_dict()["rates"] == pytest.approx(rates[: len(made.observed)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residual": "lstm"}, r"residual must be None, 'gru' or an Ensemble \(got 'lstm'\)"),
        ({"rates": [1.0] * 25}, r"rates say nothing to the law alone; add residual=\"gru\""),
        (
            {"residual": "gru", "rates": [1.0] * 24},
            r"rates must be a list of 25 learning rates.*\(got shape \[24\]\)",
        ),
        (
            {"residual": "gru", "rates": [1.0] * 19 + [0.0] * 6},
            r"rates\[19\] is 0\.0; .*above 0 so far",
        ),
        ({"residual": "gru", "rates": [1.0] * 24 + [np.nan]}, r"rates\[24\] is nan"),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forecast_loss(curve(20), 5, **options)
    forecast_loss(curve(20), 5, residual="gru", rates=[1.0] * 20 + [0.0] * 5)


def test_an_ensemble_for_other_rows_is_refused() -> None:
    good = trained().arrays()
    other = Ensemble(**(good | {"encoder": np.zeros((5, 3, good["encoder"].shape[2]), np.float32)}))
    with pytest.raises(ValueError, match=r"rows of 3 features; loss curves give 64"):
        forecast_loss(curve(20), 5, residual=other)


@pytest.mark.nightly
@pytest.mark.skipif(not TRAIN.is_file(), reason="an installed package has no scripts")
def test_one_seed_trains_one_ensemble(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        path = tmp_path / name
        sizes = ["--groups", "2", "--iterations", "5", "--hidden", "8"]
        command = [sys.executable, TRAIN, "--out", path, *sizes]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        assert "law alone" in done.stdout
        made.append(path.read_bytes())
    assert made[0] == made[1]
    assert forecast_loss(curve(20), 5, residual=Ensemble.load(tmp_path / "a")).left < 1.0
