"""Adapters whose fast cells are asymmetric: references and choppers, as Python sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import make_batch, make_tile, same_bits, train

if TYPE_CHECKING:
    from pathlib import Path

LEANING = pl.devices.SoftBounds(dw_min=0.01, up_down=0.2, up_down_dtod=0.2, write_noise_std=1.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "reference": {"reference": "symmetric_point"},
    "reference by pulses": {"reference": "symmetric_point", "reference_pulses": 8},
    "chopper": {"chopper": "reinit"},
    "both, accumulated": {
        "reference": "symmetric_point", "chopper": "reinit", "ab_update": "accumulated",
        "reinit_write": "pulsed",
    },
}  # fmt: skip


def config_of(name: str) -> pl.LRTTConfig:
    return pl.LRTTConfig(rank=3, fast=LEANING, transfer_every=3, **SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_property_38_references_and_signs_go_on_from_a_file(name: str, tmp_path: Path) -> None:
    tile = make_tile(config_of(name))
    train(tile, 4)
    tile.save(tmp_path / "tile.safetensors")
    resumed = pl.Tile.load(tmp_path / "tile.safetensors", threads=2)
    assert resumed.config == tile.config
    assert same_bits([tile.adapter.a, tile.adapter.b], [resumed.adapter.a, resumed.adapter.b])
    assert same_bits(train(tile, 5), train(resumed, 5))
    assert tile.statistics() == resumed.statistics()
    assert tile.statistics()["transfers"] >= 2


@pytest.mark.parametrize("name", SETTINGS)
def test_a_state_of_another_setting_is_refused(name: str) -> None:
    tile = make_tile(pl.LRTTConfig(rank=3, fast=LEANING, transfer_every=3))
    other = make_tile(config_of(name))
    for into, of in ((tile, other), (other, tile)):
        with pytest.raises(pl.StateError, match=r"another 'config'.*load it into a tile"):
            into.load_state(of.state())


def test_weights_are_those_that_reads_see() -> None:
    tile = make_tile(
        pl.LRTTConfig(
            rank=3, fast=LEANING.replace(write_noise_std=0.0), reference="symmetric_point"
        )
    )
    a = np.linspace(-0.1, 0.1, tile.adapter.a.size, dtype=np.float32).reshape(tile.adapter.a.shape)
    tile.adapter.a = a
    np.testing.assert_allclose(tile.adapter.a, a, atol=1e-7)
    np.testing.assert_allclose(
        tile.weights,
        tile.visible + tile.explain(*make_batch(2), 0.1)["alpha"] * tile.adapter.a @ tile.adapter.b,
        atol=1e-5,
    )
    tensors = tile.state().tensors
    np.testing.assert_array_equal(
        tensors["fast_b/weights"] - tensors["fast_b/reference"], tile.adapter.b
    )
    # A cell steps as far up as down at its reference.
    tile.adapter.b = np.zeros_like(tile.adapter.b)
    cells = tile.describe_cells("fast_b")
    np.testing.assert_allclose(cells["step_up"], -cells["step_down"], atol=1e-6)
    assert (cells["w_max"] > 0).all()
    assert (cells["w_min"] < 0).all()


def test_explain_warns_of_asymmetric_cells() -> None:
    x, d = make_batch(5)
    for fast, warns in ((LEANING, True), (pl.devices.SixT1C(), False)):
        for name in ("none", "symmetric_point"):
            tile = make_tile(pl.LRTTConfig(rank=3, fast=fast, reference=name))
            told = tile.explain(x, 0.01 * d, 0.01)
            found = [text for text in told.warnings if "reference='symmetric_point'" in text]
            assert bool(found) == (warns and name == "none")
            if name == "symmetric_point":
                assert told["fast_symmetric_point"] == 0
