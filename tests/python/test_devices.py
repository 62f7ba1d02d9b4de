"""Every device model of the core against the numpy oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
import reference_devices as oracle
from pulsora import _core

# Weights are written beyond the bounds, so that some cells are at their bounds.
pytestmark = pytest.mark.filterwarnings("ignore:.*outside the bounds of their cells")

SHAPE = (20, 30)
# One slot, which fires for certain where lr x d is large.
ONE_PULSE = pl.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
COMMON = {"dw_min": 0.01, "up_down": 0.2, "up_down_dtod": 0.1, "w_max": 0.7, "dw_min_std": 0.0}
TABLE = {
    "table_w": [-0.6, -0.5, 0.0, 0.1, 0.4, 0.7],
    "table_up": [0.1, 0.5, 2.0, 1.9, 0.0, 0.3],
    "table_down": [1.0, 1.0, 0.5, 1.5, 1.4, 0.2],
    "table_std_up": [1.0, 0.5, 2.0, 1.0, 1.0, 3.0],
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ConstantStep", {"corrupt_devices_prob": 0.1}),
    ("LinearStep", {"gamma_up": 0.4, "gamma_down": 0.3}),
    ("LinearStep", {"gamma_up": -0.5, "allow_increasing": True, "mean_bound_reference": False}),
    ("LinearStep", {"gamma_up": 0.4, "gamma_down": 0.3, "reverse_up": True, "reverse_down": True}),
    ("SoftBounds", {"corrupt_devices_prob": 0.1}),
    ("SoftBounds", {"w_min": 0.0}),
    ("SoftBoundsReference", {"subtract_symmetry_point": True, "slope_up_dtod": 0.2}),
    ("SoftBoundsReference", {"reference_mean": 0.05, "reference_std": 0.1}),
    ("ExpStep", {}),
    ("PowStep", {"pow_gamma": 1.4, "pow_up_down": 0.3, "pow_up_down_dtod": 0.1}),
    ("PiecewiseStep", {"piecewise_up": [0.1, 0.5, 2.0, 0.3], "piecewise_down": [1.0]}),
    ("TableStep", {"table_up": [0.1, 0.5, 2.0, 0.3], "table_down": [1.0]}),
    ("TableStep", {**TABLE, "corrupt_devices_prob": 0.1}),
    ("TableStep", {**TABLE, "table_curve": "cubic"}),
    ("TableStep", {"table_up": [0.1, 0.5, 2.0, 0.0, 0.3], "table_curve": "cubic"}),
    ("TableStep", {"table_up": [0.1, 0.5], "table_curve": "cubic"}),
]


def make_tile(model: str, values: dict[str, Any]) -> tuple[pl.Tile, dict[str, Any], dict[str, Any]]:
    """A tile of the model with spread-out weights, its parameters and its stored cells by name."""
    device = getattr(pl.devices, model)(**{**COMMON, **values})
    tile = pl.Tile(*SHAPE, pl.SingleConfig(device=device, update=ONE_PULSE), seed=11)
    tile.weights = np.linspace(-0.8, 0.8, 600, dtype=np.float32).reshape(SHAPE)
    names = _core.schema()["devices"][model]["cell"]
    planes = next(v for k, v in tile.state().tensors.items() if k.endswith("cells"))
    cells = {name: plane.astype(np.float64) for name, plane in zip(names, planes, strict=True)}
    return tile, device.to_dict(), cells


@pytest.mark.parametrize(("model", "values"), CASES)
def test_property_41_bounds_and_mean_steps_are_those_of_the_oracle(
    model: str, values: dict[str, Any]
) -> None:
    tile, params, cells = make_tile(model, values)
    described = tile.describe_cells()
    lower, upper = oracle.bounds(model, params, cells)
    np.testing.assert_allclose(described["w_min"], lower, atol=5e-7)
    np.testing.assert_allclose(described["w_max"], upper, atol=5e-7)
    weights = tile.weights.astype(np.float64)
    up, down = oracle.mean_steps(model, weights, params, cells)
    np.testing.assert_allclose(described["step_up"], up, atol=3e-7)
    np.testing.assert_allclose(described["step_down"], -down, atol=3e-7)


@pytest.mark.parametrize(("model", "values"), CASES)
def test_property_41_one_pulse_is_that_of_the_oracle(model: str, values: dict[str, Any]) -> None:
    for sign in (1.0, -1.0):
        tile, params, cells = make_tile(model, values)
        before = tile.weights.astype(np.float64)
        x = np.ones(SHAPE[1], np.float32)
        d = np.full(SHAPE[0], sign, np.float32)
        tile.update(x, d, lr=10.0)
        after = oracle.pulse(model, before, sign < 0, params, cells, np.zeros(SHAPE))
        np.testing.assert_allclose(tile.weights, after, atol=3e-7)


@pytest.mark.parametrize(("model", "values"), CASES)
def test_property_41_symmetric_points_are_those_of_the_oracle(
    model: str, values: dict[str, Any]
) -> None:
    device = getattr(pl.devices, model)(**{**COMMON, **values})
    tile = pl.Tile(20, 9, pl.LRTTConfig(rank=9, fast=device, reference="symmetric_point"), seed=11)
    tensors = tile.state().tensors
    names = _core.schema()["devices"][model]["cell"]
    cells = {n: p.astype(np.float64) for n, p in zip(names, tensors["fast_a/cells"], strict=True)}
    expected = oracle.symmetric_point(model, device.to_dict(), cells)
    # The tolerance is the rounding of a pulse over the slope of its step, without a closed form.
    np.testing.assert_allclose(tensors["fast_a/reference"], expected, atol=2e-4)
    lower, upper = oracle.bounds(model, device.to_dict(), cells)
    inside = (expected > lower + 1e-3) & (expected < upper - 1e-3)
    tile.adapter.a = np.zeros((20, 9), np.float32)
    steps = tile.describe_cells("fast_a")
    if model != "ConstantStep":
        assert (abs(expected) > 0.01).any() != ("subtract_symmetry_point" in values)
        equal = abs(steps["step_up"] + steps["step_down"]) < 1e-5
        assert equal[inside & (expected != 0)].all()


@pytest.mark.parametrize("spread", ["relative", "absolute"])
@pytest.mark.parametrize("curve", ["linear", "cubic"])
def test_cycle_noise_of_a_table_is_that_of_the_oracle(curve: str, spread: str) -> None:
    # 2e4 cells that are equal but for their weight: five standard errors of a standard deviation.
    values = TABLE | {"table_curve": curve, "table_spread": spread, "dw_min_std": 0.4}
    off = {"dw_min_dtod": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
    device = pl.devices.TableStep(**{**COMMON, **values, **off})
    tile = pl.Tile(20_000, 7, pl.SingleConfig(device=device, update=ONE_PULSE), seed=5)
    weights = np.tile(np.linspace(-0.55, 0.6, 7, dtype=np.float32), (20_000, 1))
    cells = dict.fromkeys(("gain_up", "gain_down", "bound_max", "bound_min"), np.ones(7))
    for sign in (1.0, -1.0):
        tile.weights = weights
        tile.update(np.ones(7, np.float32), np.full(20_000, sign, np.float32), lr=10.0)
        expected = [
            oracle.pulse("TableStep", weights[0], sign < 0, device.to_dict(), cells, xi)
            for xi in (np.zeros(7), np.ones(7))
        ]
        sd = abs(expected[1] - expected[0])
        assert (sd > 0).sum() >= 6
        np.testing.assert_allclose(
            tile.weights.std(axis=0, dtype=np.float64), sd, rtol=5 / np.sqrt(4e4), atol=1e-7
        )
        error = abs(tile.weights.mean(axis=0, dtype=np.float64) - expected[0])
        assert (error <= 5 * sd / np.sqrt(2e4) + 1e-6).all()


def test_every_model_has_a_case() -> None:
    assert {model for model, _ in CASES} == set(pl.devices.MODELS) == set(oracle.STEPS)
