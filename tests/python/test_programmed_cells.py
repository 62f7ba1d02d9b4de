"""Cells of programmed arrays: exact targets of two-sided pairs, and threads that change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import same_bits

CELLS: dict[str, dict[str, Any]] = {
    "pair": {},
    "two_sided_pair": {},
    "pairs": {"significance": [1.0, 2.0, 4.0]},
    "single": {"cell_reference": "column", "read_window": 0.0},
    "slices": {},
    "table": {
        "table_w": [-1.0, -0.4, 0.0, 0.5, 1.0],
        "table_g": [0.05, 0.2, 0.5, 0.7, 0.95, 0.85, 0.52, 0.5, 0.3, 0.15],
    },
}


def still(g_min: float, g_max: float) -> pl.noise_models.PowerLaw:
    """A memory without errors."""
    zeros = {name: [0.0] for name in ("g", "sigma", "nu_mean", "nu_std", "read_noise")}
    return pl.noise_models.PowerLaw(g_min=g_min, g_max=g_max, **zeros)


@pytest.mark.parametrize("scaling_per", ["output", "tile"])
@pytest.mark.parametrize("g_range", [(0.0, 32.0), (0.0, 25.0), (3.0, 88.2)])
def test_two_sided_pairs_have_the_targets_and_weights_of_the_formula(
    g_range: tuple[float, float], scaling_per: str
) -> None:
    weights = np.random.default_rng(3).normal(size=(7, 301)).astype(np.float32)
    weights[:, :3] = [0.0, -0.0, 1e-30]
    config = pl.InferenceConfig(
        noise_model=still(*g_range), cell="two_sided_pair", compensation="none",
        scaling_per=scaling_per,
    )  # fmt: skip
    tile: Any = pl.Tile(*weights.shape, config, seed=1)
    tile.weights = weights
    tile.programming.program()
    per_output = scaling_per == "output"
    scale = np.abs(weights).max(axis=1 if per_output else None, keepdims=True)
    half = np.float32(0.5)
    up, down = half * (weights / scale) + half, half - half * (weights / scale)
    shares = np.stack([up, down], axis=-1)
    # A share of the range is rounded once: a product of two floats is exact in double precision.
    low, high = (float(np.float32(g)) for g in g_range)
    targets = (shares.astype(np.float64) * float(np.float32(high - low)) + low).astype(np.float32)
    for which in ("target", "programmed", "now"):
        assert same_bits([tile.programming.conductances(which)], [targets])
    is_exact = g_range == (0.0, 32.0)  # shares come back from conductances without rounding
    if is_exact:
        assert same_bits([tile.weights], [(up - down) * scale])
    # In units of 2^-24 of the scale: w, both shares, their difference and the product are rounded,
    # and conductances of other ranges, there and back.
    assert (np.abs(tile.weights - weights) <= (3 if is_exact else 8) * 2.0**-24 * scale).all()


@pytest.mark.parametrize("cell", CELLS)
def test_property_61_weights_do_not_depend_on_threads(cell: str) -> None:
    # 380 x 400 cells: digits, tables, devices and sums are each cut into parts for three threads.
    weights = np.random.default_rng(1).normal(size=(380, 400)).astype(np.float32)
    config = pl.InferenceConfig(
        cell=cell, stuck_low=0.03, stuck_high=0.02, **{"read_window": 1e-3} | CELLS[cell]
    )
    x = np.random.default_rng(2).normal(size=(3, 400)).astype(np.float32)
    made = []
    for threads in (1, 3, 2):
        tile: Any = pl.Tile(380, 400, config, seed=5, tile_id=2, threads=threads)
        tile.weights = weights
        found = []
        for number, time in ((3, 0.0), (3, 3600.0), (4, 1e6)):
            tile.programming.program(number)
            tile.programming.drift(time)
            found += [tile.weights, tile.programming.conductances(), tile.forward(x)]
            found.append(np.array(tile.programming.compensation))
        made.append(found)
    assert same_bits(made[1], made[0])
    assert same_bits(made[2], made[0])
