"""Loss curves continued as power laws: the law, its intervals, and what they are used for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pulsora.forecast import forecast_loss
from pulsora.forecast.loss_curve.bend import student_quantile
from pulsora.forecast.loss_curve.power_law import PowerLaw


def curve(count: int, exponent: float = 0.5, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    steps = np.arange(1, count + 1)
    errors = np.random.default_rng(seed).standard_normal(count)
    return 2.0 * steps**-exponent * np.exp(noise * errors)


def test_a_power_law_is_continued_exactly() -> None:
    forecast = forecast_loss(curve(40), 60)
    np.testing.assert_allclose(forecast.expected, curve(100)[40:], rtol=1e-12)
    assert forecast.exponent == pytest.approx(0.5, rel=1e-12)
    assert forecast.steps.tolist() == list(range(41, 101))
    assert forecast.left == pytest.approx(1.0 - math.sqrt(0.4), rel=1e-12)
    assert not forecast.diverging


def test_intervals_contain_what_they_promise() -> None:
    """Checks the mean of 100 curves with one noise; errors in one curve are not independent.

    The share of a curve has a standard deviation below 0.3, and the mean below 0.3 / sqrt(100) =
    0.03.
    """
    for level, ahead in ((0.9, 20), (0.5, 40)):
        inside = []
        for seed in range(100):
            whole = curve(60 + ahead, 0.4, 0.05, seed)
            forecast = forecast_loss(whole[:60], ahead, level=level)
            future = whole[60:]
            inside.append(np.mean((forecast.lower <= future) & (future <= forecast.upper)))
        # Fits to shorter parts err more than their errors say, which widens intervals a little.
        assert level - 5 * 0.03 <= np.mean(inside) <= level + 5 * 0.03


def test_noisier_curves_have_wider_intervals() -> None:
    few, many = (forecast_loss(curve(60, 0.4, noise, 1), 20) for noise in (0.01, 0.1))
    assert (many.upper / many.lower > few.upper / few.lower).all()
    assert (np.diff(many.upper / many.lower) > 0.0).all()  # the farther, the less is known


def test_how_long_it_takes_to_a_loss() -> None:
    forecast = forecast_loss(curve(50), 10)
    reach = forecast.reach(0.2)  # 2 t^-1/2 = 0.2 at step 100
    assert reach.expected == pytest.approx(50, abs=1)
    assert reach.earliest <= reach.expected <= reach.latest
    assert forecast.reach(float(curve(50)[-1])).latest == 0.0
    rising = forecast_loss(1.0 / curve(50), 10)
    assert rising.reach(0.1).expected == math.inf
    with pytest.raises(ValueError, match=r"target must be a positive number \(got -1\)"):
        forecast.reach(-1)


def test_divergence_is_told() -> None:
    calm = curve(60, 0.4, 0.03, 2)
    assert not forecast_loss(calm, 10).diverging
    wild = np.concatenate([calm, calm[-1] * np.array([1.5, 2.0, 3.0, 5.0, 8.0, 13.0])])
    forecast = forecast_loss(wild, 10)
    assert forecast.diverging
    assert "diverging" in str(forecast)
    better = np.concatenate([calm, calm[-1] * 0.5 ** np.arange(1, 7)])
    assert not forecast_loss(better, 10).diverging


def inside(whole: np.ndarray, count: int, ahead: int) -> float:
    forecast = forecast_loss(whole[:count], ahead)
    future = whole[count : count + ahead]
    return float(np.mean((forecast.lower <= future) & (future <= forecast.upper)))


def bent(name: str, seed: int) -> np.ndarray:
    """Curves that are no power law, of 120 losses with noise."""
    steps, rng = np.arange(1.0, 121.0), np.random.default_rng(seed)
    log = {
        "exponential above a floor": np.log(0.2 + np.exp(-steps / rng.uniform(6.0, 40.0))),
        "exponential": -steps / 60.0,
        "U shape": 0.15 * np.log(steps / rng.uniform(20.0, 50.0)) ** 2,
    }[name]
    return np.exp(log + 0.02 * rng.standard_normal(120))


@pytest.mark.parametrize(
    ("name", "before"),
    [("exponential above a floor", 0.80), ("exponential", 0.40), ("U shape", 0.55)],
)
def test_intervals_of_curves_that_bend_are_wide_and_it_is_told(name: str, before: float) -> None:
    """The law alone has intervals with the share `before` of the losses, for the level 0.9."""
    curves = [bent(name, seed) for seed in range(100)]
    forecasts = [forecast_loss(whole[:60], 60) for whole in curves]
    told = np.mean([not forecast.follows_law for forecast in forecasts])
    share = np.mean([inside(whole, 60, 60) for whole in curves])
    alone = np.mean([
        inside(whole, 60, 60)
        for whole, forecast in zip(curves, forecasts, strict=True)
        if forecast.follows_law
    ] or [1.0])  # fmt: skip
    assert share > 0.85 > before
    assert told > 0.5
    assert alone > 0.5
    has_turned = np.mean([forecast.turned for forecast in forecasts])
    assert (has_turned > 0.5) if name == "U shape" else (has_turned < 0.05)


def test_the_summary_tells_a_bend_and_a_turn() -> None:
    steps = np.arange(1.0, 61.0)
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(60))
    turned = forecast_loss(np.exp(0.3 * np.log(steps / 25.0) ** 2) * noise, 30)
    assert turned.turned
    assert not turned.follows_law
    assert "it has passed its minimum and rises" in str(turned)
    assert turned.upper[-1] > 1.4 * turned.expected[-1]
    falling = forecast_loss(np.exp(-steps / 20.0) * noise, 30)
    assert not falling.turned
    assert "it bends away from the law" in str(falling)
    straight = forecast_loss(curve(60, 0.4, 0.01), 30)
    assert straight.follows_law
    assert "warning" not in str(straight)


def test_intervals_of_ten_losses_hold_what_they_promise() -> None:
    """The share of a curve has a standard deviation below 0.25, the mean below 0.0125."""
    shares = [inside(curve(20, 0.4, 0.05, seed), 10, 10) for seed in range(400)]
    assert 0.9 - 5 * 0.0125 < np.mean(shares) < 0.9 + 5 * 0.0125


@pytest.mark.parametrize("freedom", [4, 5, 10, 40])
def test_quantiles_of_students_distribution(freedom: int) -> None:
    """The density integrated up to the quantile is the probability."""
    constant = (
        math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    )
    for probability in (0.75, 0.95, 0.995):
        x = np.linspace(0.0, student_quantile(probability, freedom), 10001)
        density = constant * (1.0 + x**2 / freedom) ** (-(freedom + 1) / 2)
        area = float(np.sum(0.5 * (density[1:] + density[:-1]) * np.diff(x)))
        assert area == pytest.approx(probability - 0.5, abs=5e-4)


def test_few_calm_curves_are_called_diverging() -> None:
    """Six losses above a 90 % interval have a probability below 5 % even if fully correlated."""
    called = [forecast_loss(curve(60, 0.4, 0.05, seed), 10).diverging for seed in range(80)]
    assert np.mean(called) < 0.05


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        ([1.0] * 9, {}, r"losses must be a list of at least 10 numbers \(got shape \[9\]\)"),
        (np.ones((10, 2)), {}, r"got shape \[10, 2\]"),
        ([*[1.0] * 10, math.nan], {}, r"losses\[10\] is nan: the training has diverged"),
        ([*[1.0] * 10, 0.0], {}, r"losses\[10\] must be a positive number \(got 0.0\)"),
        (curve(20), {"ahead": 0}, r"ahead must be at least 1 \(got 0\)"),
        (curve(20), {"level": 1.0}, r"level must be above 0 and below 1 \(got 1.0\)"),
        (curve(12), {"level": 0.99}, r"these 12 losses allow for intervals up to level 0\.\d+"),
    ],
)
def test_bad_input_is_named(losses: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forecast_loss(losses, **({"ahead": 5} | options))


def test_the_work_for_a_long_curve_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, real = [], PowerLaw.fitted
    monkeypatch.setattr(PowerLaw, "fitted", lambda losses: fitted.append(1) or real(losses))
    forecast = forecast_loss(2.0 / np.arange(1.0, 20001.0) ** 0.5, ahead=100)
    assert len(fitted) < 700  # of this forecast, and of that of divergence
    assert forecast.expected[-1] == pytest.approx(2.0 / 20100**0.5)


def test_what_is_left_is_said_of_the_law() -> None:
    text = str(forecast_loss(2.0 * np.arange(1.0, 21.0) ** 0.5, ahead=20))
    assert "41.4% more than the law has for now" in text
    with pytest.raises(ValueError, match="losses must be a list of numbers"):
        forecast_loss(["a"] * 20, ahead=5)  # type: ignore[list-item]


@pytest.mark.parametrize("steps", [0, [3, 0.5], float("nan")])
def test_there_is_no_step_before_the_first(steps: object) -> None:
    made = forecast_loss(np.linspace(2.0, 1.0, 20), 3)
    with pytest.raises(ValueError, match="the first step of a curve is 1"):
        made.at(steps)  # type: ignore[arg-type]
