"""Values of explain() for chains of arrays, beside what updates do."""

from __future__ import annotations

import numpy as np
import pytest

import pulsora as pl
from conftest import same_bits

PRESETS = [
    getattr(pl.presets, cells + family)()
    for cells in ("EcRam", "ReRamSB")
    for family in ("TTv2", "ChoppedTTv2", "AGAD")
]


@pytest.mark.parametrize("config", PRESETS, ids=lambda config: config.buffer)
def test_automatic_rates_are_those_of_updates(config: pl.TransferConfig) -> None:
    # Samples of equal maxima: the largest element asks for fast_lr pulses in each of desired_bl
    # slots, whatever the tile's learning rate is.
    assert config.auto_scale
    tile = pl.Tile(5, 4, config, seed=1)
    x, d = np.full((32, 4), 0.3, np.float32), np.full((32, 5), -0.02, np.float32)
    expected = config.fast_lr * config.update.desired_bl
    for lr in (0.01, 10.0):
        told = tile.explain(x, d, lr)
        assert told["mean_pulses_of_largest"] == pytest.approx(expected, rel=1e-4)
        assert told["undelivered"] == pytest.approx(0.0, abs=1e-5)
        assert told.warnings == ()
    before = tile.state()
    tile.explain(x, d, 0.1)
    after = tile.state()
    assert before.values == after.values
    assert all(same_bits(before.tensors[name], each) for name, each in after.tensors.items())


def test_automatic_rates_follow_the_running_maxima() -> None:
    # The maxima of the batches before are part of the rates: inputs twice as large as those ask for
    # up to four times the pulses, and less as the maxima follow.
    config = pl.AGAD(pl.devices.SoftBounds(dw_min=0.01), auto_scale=True, fast_lr=0.1)
    tile = pl.Tile(3, 4, config, seed=1)
    x, d = np.full((8, 4), 0.3, np.float32), np.full((8, 3), 0.02, np.float32)
    usual = config.fast_lr * config.update.desired_bl
    tile.update(x, d, 0.1)
    decay = (1.0 - config.auto_momentum) / 8
    seen, asked = 1.0, []
    for _ in range(8):
        seen += decay * (2.0 - seen)
        asked.append(4.0 * usual / seen**2)
    told = tile.explain(2 * x, 2 * d, 0.1)
    assert told["mean_pulses_of_largest"] == pytest.approx(np.mean(asked), rel=1e-4)


def test_a_rate_without_automatic_scale_is_told_by_its_name() -> None:
    cells = pl.devices.SoftBounds(dw_min=0.01)
    x, d = np.full((8, 4), 0.01, np.float32), np.full((8, 3), 0.01, np.float32)
    config = pl.TTv2(cells, auto_scale=False, fast_lr=0.1, scale_fast_lr=False)
    (said,) = pl.Tile(3, 4, config, seed=1).explain(x, d, 0.1).warnings
    assert said.endswith("mostly noise; lower dw_min or raise fast_lr")
    (said,) = pl.Tile(3, 4, pl.TikiTaka(cells, fast_lr=0.0), seed=1).explain(x, d, 0.1).warnings
    assert said.endswith("lower dw_min or raise lr")
