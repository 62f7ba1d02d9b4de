"""Devices from tables, and devices in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

import pulsora as pl
from pulsora.devices import contract

if TYPE_CHECKING:
    from pathlib import Path

W = np.array([-0.8, -0.5, 0.1, 0.4, 1.0])
UP = np.array([0.010, 0.008, 0.005, 0.002, 0.0])
DOWN = np.array([0.001, 0.002, 0.004, 0.008, 0.009])


def steps_at(device: pl.devices.Device, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tile = pl.Tile(len(weights), 1, pl.SingleConfig(device=device))
    tile.weights = weights.astype(np.float32)[:, None]
    cells = tile.describe_cells()
    return cells["step_up"][:, 0], -cells["step_down"][:, 0]


@pytest.mark.parametrize("curve", ["linear", "cubic"])
def test_a_tile_steps_as_the_table_says(curve: str) -> None:
    device = pl.devices.from_table(W, UP, DOWN, curve=curve)
    assert device.dw_min_std == device.dw_min_dtod == device.w_max_dtod == 0.0
    weights = np.linspace(W[0], W[-1], 101)
    for seen, table in zip(steps_at(device, weights), (UP, DOWN), strict=True):
        wanted = np.interp(weights, W, table)
        if curve == "cubic":
            wanted = PchipInterpolator(W, table)(weights)
        np.testing.assert_allclose(seen, wanted, atol=1.2e-7)


def test_measured_spreads_are_those_of_the_pulses() -> None:
    # 1e5 cells of equal weight: five standard errors.
    std = np.array([0.001, 0.004, 0.002, 0.002, 0.001])
    device = pl.devices.from_table(W, UP, DOWN, std_up=std, std_down=2 * std, curve="linear")
    update = pl.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    tile = pl.Tile(100_000, 1, pl.SingleConfig(device=device, update=update), seed=3)
    for sign, factor in ((-1.0, 1.0), (1.0, 2.0)):
        tile.weights = np.full((100_000, 1), -0.35, np.float32)
        tile.update(np.ones(1, np.float32), np.full(100_000, sign, np.float32), lr=1.0)
        wanted = factor * np.interp(-0.35, W, std)
        assert tile.weights.std(dtype=np.float64) == pytest.approx(wanted, rel=5 / np.sqrt(2e5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": [0.0]}, "w has 1 numbers; give 2 to 64"),
        ({"w": "abc"}, "w must be a list of numbers"),
        ({"w": [[0.0, 1.0]]}, r"w must be a list of numbers \(got shape \[1, 2\]\)"),
        ({"w": [-0.8, -0.5, 0.4, 0.1, 1.0]}, r"w\[3\] is 0.1, not above w\[2\] = 0.4"),
        ({"w": [-0.8, -0.5, np.nan, 0.1, 1.0]}, r"w\[2\] is nan; leave"),
        ({"w": W + 2.0}, "do not enclose 0; shift the weights"),
        ({"dw_up": UP[1:]}, "dw_up has 4 numbers, and w has 5"),
        ({"dw_down": -DOWN}, r"dw_down\[0\] is -0.001; give magnitudes"),
        ({"dw_up": 0 * UP, "dw_down": 0 * UP}, "0 at every node"),
        ({"std_up": UP, "dw_min_std": 0.1}, "give one of them"),
        ({"curve": "spline"}, "table_curve"),
        ({"w_max": 0.5}, "table_w.4. is 1, outside"),
        ({"wmax": 0.5}, "no parameter 'wmax'"),
    ],
)
def test_bad_tables_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, pl.ConfigError), match=message):
        pl.devices.from_table(**({"w": W, "dw_up": UP, "dw_down": DOWN} | changes))


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_saved_device_is_read_back(tmp_path: Path, suffix: str) -> None:
    if suffix == ".toml":
        pytest.importorskip("tomllib")
    path = tmp_path / f"device{suffix}"
    for device in (
        pl.devices.from_table(W, UP, DOWN, std_up=UP, dw_min_dtod=0.2),
        pl.devices.EcRam(construction_seed=2**40),
        pl.devices.Idealized(dw_min=1e-30),
    ):
        pl.devices.save(device, path)
        assert pl.devices.load(path) == device


def test_what_is_no_device_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.toml or \.json"):
        pl.devices.save(pl.devices.EcRam(), tmp_path / "device.txt")
    with pytest.raises(TypeError, match="of type dict; pass a device"):
        pl.devices.save({}, tmp_path / "device.json")  # type: ignore[arg-type]
    path = tmp_path / "device.json"
    for text, message in (
        ("{", "device.json: Expecting"),
        ("[]", "holds no table"),
        ('{"model": "ConstantSteep"}', "not a device model; did you mean"),
        ('{"model": "ConstantStep", "dw_min": -1}', "dw_min is -1"),
    ):
        path.write_text(text)
        with pytest.raises((ValueError, pl.ConfigError), match=message):
            pl.devices.load(path)


@pytest.mark.parametrize("low", [-0.8, 0.0])
def test_tables_keep_the_contract_of_devices(low: float) -> None:
    """With nodes at their own bounds, one of which may be 0."""
    nodes = np.linspace(low, 1.0, 5)
    made = pl.devices.from_table(nodes, UP, DOWN, std_up=0.1 * UP, std_down=0.1 * DOWN)
    promise = contract._PROMISES["spreads have their mean and standard deviation"]
    assert list(promise(contract._Suite(made, "cpu"))) == []


def test_files_that_are_no_text_or_too_deep_are_named(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    for content in (b"[" * 100000, b"\xff\xfe\xfa"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"device\.json: "):
            pl.devices.load(path)
