"""Learning rates of devices: an update of lr moves weights at 0 by lr, for every model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pulsora as pl
from pulsora.devices import contract
from pulsora.devices.presets import DEVICES

QUIET = {"dw_min_std": 0.0, "write_noise_std": 0.0, "lifetime": 0.0, "diffusion": 0.0}
SIZE, SAMPLES = 40, 40
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "asymmetric": {"up_down": 0.4},
    "other way": {"up_down": -0.3, "w_max": 0.7, "w_min": -0.9},
    "one direction": {"up_down": 1.0},
    "bound at 0": {"up_down": 0.2, "w_min": 0.0},
}
OWN: dict[str, dict[str, Any]] = {
    "PowStep": {"pow_gamma": 1.7, "pow_up_down": 0.3},
    "PiecewiseStep": {"piecewise_up": [2.0, 1.0, 0.4], "piecewise_down": [0.3, 0.7]},
    "TableStep": {"table_up": [2.0, 1.0, 0.4, 0.3], "table_down": [0.3, 0.7, 0.8, 2.0]},
    "LinearStep": {"gamma_up": 0.4, "gamma_down": 0.2},
    "SoftBoundsReference": {"subtract_symmetry_point": True, "reference_mean": 0.05},
}
NAMES = [*pl.devices.MODELS, *DEVICES]


def still(name: str, changes: dict[str, Any]) -> pl.devices.Device:
    """The device without noise and without spread between cells."""
    device = pl.devices.presets.device(name, **changes)
    spreads = [key for key in device.to_dict() if key.endswith("_dtod")]
    return device.replace(**QUIET, **dict.fromkeys(spreads, 0.0))


def moved(device: pl.devices.Device, sign: float) -> tuple[float, float]:
    """Mean change of weights at 0, over lr, by one update in a direction, and its error."""
    lr = 0.2 * device.dw_min  # few pulses: the weights hardly leave 0
    tile = pl.Tile(SIZE, SIZE, pl.SingleConfig(device=device), seed=1, threads=1)
    found = []
    x, d = np.ones((1, SIZE), np.float32), np.full((1, SIZE), -sign, np.float32)
    for _ in range(SAMPLES):
        tile.weights = np.zeros((SIZE, SIZE), np.float32)
        tile.update(x, d, lr=lr)
        found.append(sign * float(tile.weights.mean()) / lr)
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(SAMPLES))


def at_zero(device: pl.devices.Device) -> dict[str, float]:
    """The steps and bounds of a cell at weight 0."""
    tile = pl.Tile(1, 1, pl.SingleConfig(device=device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a cell may have no weight 0
        tile.weights = np.zeros((1, 1), np.float32)
    return {name: float(plane[0, 0]) for name, plane in tile.describe_cells().items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_an_update_moves_weights_at_zero_by_the_learning_rate(name: str, case: str) -> None:
    device = still(name, {**CASES[case], **OWN.get(name, {})})
    cell = at_zero(device)
    low = cell["w_min"]
    if not low <= 0.0 <= cell["w_max"] or cell["step_up"] == cell["step_down"] == 0.0:
        pytest.skip("cells of this reference have no weight 0, or no step there")
    up, down = moved(device, 1.0), moved(device, -1.0)
    if low == 0.0:  # a bound, below which no pulse moves the weight
        assert abs(down[0]) < 1e-6
        assert abs(up[0] - 1.0) < 5.0 * up[1]
    else:
        mean, error = 0.5 * (up[0] + down[0]), 0.5 * float(np.hypot(up[1], down[1]))
        assert abs(mean - 1.0) < 5.0 * error, (up, down)


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_promises_it(name: str) -> None:
    for changes in CASES.values():
        suite = contract._Suite(still(name, {**changes, **OWN.get(name, {})}), "cpu")
        assert list(contract._learning_rate(suite)) == []
