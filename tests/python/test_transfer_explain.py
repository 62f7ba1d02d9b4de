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


@pytest.mark.parametrize("make", [pl.TTv2, pl.ChoppedTTv2, pl.AGAD])
def test_statistics_tell_the_largest_number_of_a_buffer(make: type[pl.TransferConfig]) -> None:
    tile = pl.Tile(3, 4, make(pl.devices.SoftBounds(dw_min=0.01)), seed=1)
    assert tile.statistics()["largest_buffered"] == [0.0]
    rng = np.random.default_rng(1)
    for _ in range(40):  # AGAD writes nothing before a line was read several times
        x, d = rng.normal(size=(2, 8, 4)).astype(np.float32)
        tile.update(x, d[:, :3], 0.1)
    (name,) = (each for each in tile.state().tensors if each.endswith("transfer_0/buffer"))
    expected = float(np.abs(tile.state().tensors[name]).max())
    assert expected > 0.0
    assert tile.statistics()["largest_buffered"] == [expected]


def test_a_chain_without_buffers_has_nothing_buffered() -> None:
    cells = pl.devices.SoftBounds(dw_min=0.01)
    tile = pl.Tile(3, 4, pl.TikiTaka(cells, fast=[cells, cells]), seed=1)
    tile.update(np.ones((8, 4), np.float32), np.ones((8, 3), np.float32), 0.1)
    assert tile.statistics()["largest_buffered"] == [0.0, 0.0]
