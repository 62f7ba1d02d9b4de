"""Presets of Tiki-Taka and its successors: the published settings of all 24."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pulsora as pl
from pulsora import presets


class Published(NamedTuple):
    """Settings that are found automatically in part: one row of a table."""

    fast_lr: float
    auto_granularity: float
    slots: int
    in_chop_prob: float
    tail_weightening: float = 5.0


TTV2 = {
    "ReRamES": Published(0.5, 1000, 31, 0.0),
    "ReRamSB": Published(0.5, 1000, 31, 0.0),
    "Capacitor": Published(0.1, 1000, 31, 0.0),
    "EcRam": Published(0.1, 500, 100, 0.0),
    "EcRamMO": Published(0.1, 500, 100, 0.0),
    "Idealized": Published(0.1, 500, 100, 0.0),
}
CHOPPED = {
    "ReRamES": Published(0.5, 1000, 31, 0.01),
    "ReRamSB": Published(0.5, 1000, 31, 0.01),
    "Capacitor": Published(0.1, 1000, 31, 0.01),
    "EcRam": Published(1.0, 500, 100, 0.01),
    "EcRamMO": Published(0.1, 500, 100, 0.001),
    "Idealized": Published(0.1, 500, 100, 0.001),
}
DYNAMIC = {
    "ReRamES": Published(0.5, 1000, 31, 0.02, 5.0),
    "ReRamSB": Published(0.5, 1000, 31, 0.02, 5.0),
    "Capacitor": Published(0.1, 1000, 31, 0.01, 20.0),
    "EcRam": Published(0.1, 750, 31, 0.005, 50.0),
    "EcRamMO": Published(0.1, 500, 100, 0.005, 50.0),
    "Idealized": Published(0.1, 500, 100, 0.005, 50.0),
}
CHAINS = [
    (f"{cells}{algorithm}", cells, buffer, published[cells])
    for algorithm, buffer, published in (
        ("TTv2", "chopped", TTV2),
        ("ChoppedTTv2", "chopped", CHOPPED),
        ("AGAD", "dynamic", DYNAMIC),
    )
    for cells in published
]
COUNTED = pl.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


def require_arrays_and_periphery(config: pl.TransferConfig, cells: str) -> None:
    """Two arrays alike, read with the periphery of presets, transfers without managements."""
    given: dict[str, Any] = {"subtract_symmetry_point": True} if cells == "ReRamSB" else {}
    device = getattr(pl.devices, cells)(**given)
    assert config.visible == device
    assert config.fast == (device,)
    assert config.gamma == 0
    assert config.forward == config.backward == presets.io()
    plain = {"noise_management": "none", "bound_management": "none"}
    assert config.transfer_forward == presets.io(**plain)
    assert (config.transfer_every, config.n_reads_per_transfer) == (1, 1)
    assert config.transfer_columns
    assert not config.random_selection
    assert (config.transfer_lr, config.scale_transfer_lr) == (1, True)


@pytest.mark.parametrize("cells", TTV2)
def test_tiki_taka_has_the_published_settings(cells: str) -> None:
    config = getattr(presets, f"{cells}TikiTaka")()
    require_arrays_and_periphery(config, cells)
    assert config.buffer == "none"
    assert config.units_in_mbatch
    assert config.update == config.transfer_update == pl.UpdateParameters()
    assert (config.fast_lr, config.scale_fast_lr, config.auto_scale) == (1, True, False)


@pytest.mark.parametrize(
    ("name", "cells", "buffer", "published"), CHAINS, ids=[each[0] for each in CHAINS]
)
def test_buffered_chains_have_the_published_settings(
    name: str, cells: str, buffer: str, published: Published
) -> None:
    config = getattr(presets, name)()
    require_arrays_and_periphery(config, cells)
    assert config.buffer == buffer
    assert not config.units_in_mbatch
    assert config.auto_scale
    assert not config.scale_fast_lr
    found = Published(
        config.fast_lr,
        config.auto_granularity,
        config.update.desired_bl,
        config.in_chop_prob,
        config.tail_weightening,
    )
    np.testing.assert_allclose(found, published, rtol=1e-6)
    assert config.update == pl.UpdateParameters(desired_bl=published.slots)
    assert config.transfer_update == COUNTED
    assert config.in_chop_random == (buffer == "chopped")
    assert (config.momentum, config.forget_buffer, config.out_chop_prob) == (0, True, 0)


def test_all_chains_are_presets_and_make_tiles() -> None:
    names = [f"{cells}TikiTaka" for cells in TTV2] + [each[0] for each in CHAINS]
    assert len(names) == 24
    for name in names:
        config = getattr(presets, name)(gamma=0.5)
        assert config.gamma == 0.5
        assert getattr(presets, name).__name__ == name
        assert pl.Tile(3, 4, config, seed=1).config == config
