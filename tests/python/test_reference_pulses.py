"""The library's pulses against the numpy oracle, coincidence by coincidence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import pulsora as pl
from reference_pulses import Update, counts, train_scale
from reference_random import make_key

DW_MIN = 2.0**-10  # sums of pulses are then exact in single precision
VISIBLE_UPDATE = 8  # ArrayId of the pulse trains of a tile's array

CASES: dict[str, Update] = {
    "default": Update(),
    "long": Update(desired_bl=64, update_bl_management=False),
    "short": Update(desired_bl=3, update_bl_management=False),
    "clipped": Update(desired_bl=5),
    "bare": Update(update_management=False, update_bl_management=False),
    "by_learning_rate": Update(
        fixed_bl=False, update_bl_management=False, desired_bl=10, update_management=False
    ),
    "gradient_scale": Update(um_grad_scale=0.5),
    "two_pass": Update(pulse_type="stochastic"),
    "mean_count": Update(pulse_type="mean_count"),
    "implicit": Update(pulse_type="deterministic_implicit"),
}


def ideal_tile(update: Update, seed: int, tile_id: int) -> pl.Tile:
    spreads: dict[str, Any] = dict.fromkeys(
        ("dw_min_dtod", "dw_min_std", "w_max_dtod", "w_min_dtod", "up_down_dtod", "reset_dtod"), 0.0
    )
    device = pl.devices.ConstantStep(dw_min=DW_MIN, w_max=1e4, w_min=-1e4, **spreads)
    config = pl.SingleConfig(
        device=device, update=pl.UpdateParameters(**dataclasses.asdict(update))
    )
    return pl.Tile(4, 6, config, seed=seed, tile_id=tile_id)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("lr", [0.1, -0.02])
def test_property_41_weights_move_by_the_counts_of_the_oracle(name: str, lr: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(9, 6)).astype(np.float32)
    d = (0.2 * rng.normal(size=(9, 4))).astype(np.float32)
    x[2, 3] = d[4, 1] = 0.0
    x[7] = 0.0
    tile = ideal_tile(CASES[name], seed=17, tile_id=5)
    key = make_key(17, 5, VISIBLE_UPDATE)
    expected = counts(
        CASES[name], x.astype(float), d.astype(float), float(np.float32(lr)), DW_MIN, key
    )
    for s in range(9):
        before = tile.weights.copy()
        tile.update(x[s : s + 1], d[s : s + 1], lr)
        np.testing.assert_array_equal((tile.weights - before) / DW_MIN, expected[s], strict=False)
    assert np.abs(expected).sum() > 0
    assert tile.statistics()["pulses"] == np.abs(expected).sum()


def test_property_01_the_oracle_has_the_mean_of_gradient_descent() -> None:
    # N = 20000 samples, 5 sigma of the binomial.
    n = 20000
    x, d = np.array([0.9, -0.5, 0.1]), np.array([0.8, -0.3])
    lr = 0.01
    measured = counts(
        Update(), np.tile(x, (n, 1)), np.tile(d, (n, 1)), lr, DW_MIN, make_key(1, 2, 3)
    )
    mean = -lr * np.outer(d, x) / DW_MIN
    length, _, _ = train_scale(Update(), lr, DW_MIN, 0.9, 0.8)
    spread = np.sqrt(np.abs(mean) * (1 - np.abs(mean) / length))
    assert np.all(np.abs(measured.mean(axis=0) - mean) < 5 * spread / np.sqrt(n))
