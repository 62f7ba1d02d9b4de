"""Presets of memories that CrossSim has numbers of, against its formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pulsora as pl

DRAWS, DAY = 16384, 86400.0
PERFECT = pl.IOParameters(is_perfect=True)
EVEN = {"scaling_per": "tile", "compensation": "none", "forward": PERFECT}

SONOS = {
    100.0: [(0.0, 8.608), (-0.699, 10.55), (0.551, 12.318), (1.222, 13.357)],
    400.0: [(0.0, 17.829), (-13.102, 22.364), (-15.366, 26.554), (-17.373, 29.117)],
    800.0: [(0.0, 19.674), (-24.852, 25.187), (-32.754, 30.387), (-37.862, 33.703)],
    1200.0: [(0.0, 19.865), (-33.577, 25.541), (-45.995, 30.949), (-52.557, 34.443)],
}
"""Of currents in nA: mean drift and deviation in nA after 0, 1, 3 and 5 days."""


def cells(config: pl.InferenceConfig, targets: list[float]) -> pl.Tile:
    """A tile with a row of DRAWS cells for each target in uS, which is that of the first device."""
    model = config.noise_model
    tile = pl.Tile(len(targets), DRAWS, config, seed=11)
    relative = (np.array(targets) - model.g_min) / (model.g_max - model.g_min)
    tile.weights = np.repeat(relative[:, np.newaxis], DRAWS, axis=1)
    tile.programming.program(1)
    return tile


def compare(found: np.ndarray, mean: float, std: float, slack: float) -> None:
    """Mean and deviation of DRAWS normal draws at five sigma, with `slack` for the table."""
    values = found.astype(np.float64)
    assert values.mean() == pytest.approx(mean, abs=5 * std / math.sqrt(DRAWS) + slack)
    assert values.std() == pytest.approx(std, abs=5 * std / math.sqrt(2 * DRAWS) + slack)


def test_sonos_has_the_moments_of_its_formulas() -> None:
    # The last row sets the scale: the largest weight has 1600 nA.
    targets = [*(0.01 * current for current in SONOS), 16.0]
    tile = cells(pl.presets.SONOS(**EVEN), targets)
    for i, day in enumerate((0, 1, 3, 5)):
        tile.programming.drift(day * DAY)
        kind = "now" if day else "programmed"
        found = tile.programming.conductances(kind)[..., 0]
        for row, (current, moments) in zip(found, SONOS.items(), strict=False):
            drift, deviation = moments[i]
            compare(row, 0.01 * (current + drift), 0.01 * deviation, 0.015)
    with pytest.raises(pl.ConfigError, match="time"):
        tile.programming.drift(6 * DAY)


def test_sonos_keeps_the_deviation_of_a_device() -> None:
    tile = cells(pl.presets.SONOS(**EVEN), [8.0, 16.0])
    first = tile.programming.conductances("programmed")[0, :, 0].astype(np.float64)
    tile.programming.drift(5 * DAY)
    last = tile.programming.conductances()[0, :, 0].astype(np.float64)
    # What a device keeps is its first deviation, of 19.67 nA, in a deviation of 33.71 nA.
    expected = 19.674 / 33.705
    error = (1 - expected**2) / math.sqrt(DRAWS)
    assert np.corrcoef(first, last)[0, 1] == pytest.approx(expected, abs=5 * error + 0.01)


def test_rram_milo_has_programming_errors_alone() -> None:
    tile = cells(pl.presets.RRAMMilo(**EVEN), [60.0, 140.0, 225.0])
    found = tile.programming.conductances("programmed")[..., 0]
    for row, target in zip(found[:2], (60.0, 140.0), strict=True):
        compare(row, target, 4.782321 - 0.009107 * target, 1e-3)
    tile.programming.drift(365 * DAY)
    np.testing.assert_array_equal(tile.programming.conductances()[..., 0], found)


@pytest.mark.parametrize("preset", ["SONOS", "RRAMMilo"])
def test_settings_of_the_configuration_may_differ(preset: str) -> None:
    config = getattr(pl.presets, preset)(cell="single", cell_bits=5)
    assert (config.cell, config.cell_bits) == ("single", 5)


@pytest.mark.parametrize("preset", ["SONOS", "RRAMMilo"])
def test_memories_of_presets_have_their_names(preset: str) -> None:
    memory = getattr(pl.presets, preset)().noise_model
    assert pl.presets.noise_model(preset.lower()) == memory
    curves = pl.plot.drift_curves(pl.presets.noise_model(preset), devices=4)
    assert curves.times[-1] <= (5 * DAY if preset == "SONOS" else math.inf)
