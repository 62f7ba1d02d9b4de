"""Conductances of programmed devices: not negative, finite, and within the limits of a model."""

from __future__ import annotations

import numpy as np
import pytest

import pulsora as pl

W = np.random.default_rng(3).uniform(-1, 1, (40, 50)).astype(np.float32)


@pytest.mark.parametrize("name", sorted(pl.noise_models.MODELS))
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_property_60_conductances_stay_within_their_range(name: str, scale: float) -> None:
    memory = getattr(pl.noise_models, name)()
    memory = memory.replace(
        prog_noise_scale=scale, read_noise_scale=scale, drift_scale=max(1.0, scale / 4)
    )
    config = pl.InferenceConfig(
        noise_model=memory, cell="two_sided_pair", stuck_low=0.05, stuck_high=0.05,
        compensation="none",
    )  # fmt: skip
    tile = pl.Tile(*W.shape, config, seed=2)
    tile.weights = W
    array = tile.programming
    last = 172800.0 if name == "ReRamWan2022" else 3e7
    for number in (0, 1):
        array.program(number)
        for time in (0.0, 1.0, 3600.0, last):
            try:
                array.drift(time)
            except pl.ConfigError:  # a table that ends earlier
                continue
            target = array.conductances("target")
            assert target.min() >= memory.g_min - 1e-4
            assert target.max() <= memory.g_max * (1 + 1e-6)
            assert np.isfinite(tile.weights).all()
            now, programmed = array.conductances(), array.conductances("programmed")
            if name != "ReRamCMO":  # the others end at 0, at every time
                assert min(now.min(), programmed.min()) >= 0.0
                assert max(now.max(), programmed.max()) < np.inf
            elif time > 0.0:
                assert now.min() >= np.float32(memory.g_min)
                assert now.max() <= np.float32(memory.g_max)
            assert (now == np.float32(memory.g_min)).any()  # stuck ones
            assert (now == np.float32(memory.g_max)).any()
