"""The limit of the steps of A and B: its formula in numpy, and learning rates that need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import PERFECT

CELLS = pl.devices.ConstantStep(
    w_max=2.0, w_min=-2.0, w_max_dtod=0.0, w_min_dtod=0.0, up_down_dtod=0.0
)
EXACT: dict[str, Any] = {
    **PERFECT,
    "visible": CELLS,
    "fast": CELLS,
    "rank": 4,
    "projection": "exact",
    "transfer_every": 0,
    "update": pl.UpdateParameters(pulse_type="none_with_device"),
}


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.5, 1.0])
def test_an_update_follows_the_formula_of_the_page(limit: float, swap: bool) -> None:
    config = pl.LRTTConfig(**EXACT, swap_xd=swap, ab_step_limit=limit, lora_alpha=0.1)
    tile = pl.Tile(8, 12, config, seed=1, threads=1)
    rng = np.random.default_rng(0)
    outputs, inputs = (12, 8) if swap else (8, 12)
    a, b = rng.uniform(-0.5, 0.5, (outputs, 4)), rng.uniform(-0.5, 0.5, (4, inputs))
    tile.adapter.a, tile.adapter.b = a.astype(np.float32), b.astype(np.float32)
    x, d = rng.standard_normal((20, 12)), 0.1 * rng.standard_normal((20, 8))
    lr = 0.02
    told = tile.explain(x, d, lr)
    eta_a, eta_b = told["a_lr"], told["b_lr"]
    tile.update(x.astype(np.float32), d.astype(np.float32), lr)

    one, other = (d, x) if swap else (x, d)  # the adapter's inputs and gradients
    g, e = one @ b.T, other @ a
    share = [(v**2).sum(axis=1) for v in (g, one, e, other)]
    response = 0.1 / lr * (eta_a * share[0] / share[1] + eta_b * share[2] / share[3])
    factor = np.minimum(1.0, limit / response) if limit else np.ones(20)
    if limit:
        assert np.sum(factor < 1.0) > 0
        assert told["limited_samples"] == pytest.approx(np.mean(factor < 1.0))
        assert told["mean_step_factor"] == pytest.approx(factor.mean(), rel=1e-5)
    np.testing.assert_allclose(
        tile.adapter.a, a - eta_a * other.T @ (factor[:, None] * g), atol=1e-5
    )
    np.testing.assert_allclose(tile.adapter.b, b - eta_b * (factor[:, None] * e).T @ one, atol=1e-5)


def losses(limit: float, seed: int) -> tuple[float, float]:
    """The first and last of 60 losses of a regression at 1.5 times the inverse curvature.

    Gradient descent on the weights is stable up to twice the inverse.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, (16, 32)).astype(np.float32)
    target = 0.3 * rng.standard_normal((8, 32)).astype(np.float32)
    lr = 1.5 / np.linalg.eigvalsh(x.T @ x / 16.0)[-1]
    tile = pl.Tile(8, 32, pl.LRTTConfig(**EXACT, ab_step_limit=limit), seed=seed, threads=1)
    found = []
    for _ in range(60):
        error = tile.forward(x) - x @ target.T
        found.append(float((error**2).sum()))
        tile.update(x, error / 16.0, lr)
    return found[0], found[-1]


def test_steps_are_stable_where_those_of_plain_sgd_are() -> None:
    runs = [losses(1.0, seed) for seed in range(8)]
    assert all(last < 0.5 * first for first, last in runs)
    free = [losses(0.0, seed) for seed in range(8)]
    assert sum(last > 10.0 * first for first, last in free) >= 4


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(pl.ConfigError, match="ab_step_limit"):
        pl.LRTTConfig(ab_step_limit=-1.0)
