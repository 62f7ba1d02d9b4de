"""Device presets: their numbers, that they make tiles, and that configurations use them."""

from __future__ import annotations

import numpy as np
import pytest

import pulsora as pl
from pulsora import presets

# Model, dw_min, bounds and cycle noise as published (see the docstrings of the presets).
NUMBERS = {
    "Idealized": ("ConstantStep", 2e-4, 1.0, -1.0, 0.3),
    "GokmenVlasov": ("ConstantStep", 0.0016, 1.0, -1.0, 0.3),
    "EcRam": ("LinearStep", 0.002, 1.1724, -0.8276, 0.3),
    "EcRamMO": ("LinearStep", 2.8214e-4, 1.1714, -0.8286, 2.0),
    "Capacitor": ("LinearStep", 0.005, 1.0, -1.0, 0.3),
    "SixT1C": ("LinearStep", 0.001981, 1.0, -1.0, 0.3),
    "ReRamES": ("ExpStep", 0.00135, 1.0, -1.0, 5.0),
    "ReRamSB": ("SoftBoundsReference", 0.002, 1.25, -0.75, 3.75),
}


def test_every_preset_is_tested() -> None:
    assert set(presets.names()) == set(NUMBERS)


@pytest.mark.parametrize("name", presets.names())
def test_numbers(name: str) -> None:
    device = presets.device(name)
    model, *numbers = NUMBERS[name]
    assert device.model == model
    found = [device.dw_min, device.w_max, device.w_min, device.dw_min_std]
    np.testing.assert_allclose(found, numbers, rtol=1e-6)


@pytest.mark.parametrize("name", presets.names())
def test_property_35_symmetry_of_presets_about_zero(name: str) -> None:
    """At weight 0 both directions have the mean step dw_min, up to the asymmetry of the fit.

    100 cells, 20 pulses each from 0, without noise and spreads.
    """
    spreads = {n: 0.0 for n in pl.presets.device(name).to_dict() if n.endswith(("_dtod", "_std"))}
    device = presets.device(name, **spreads)
    steps = []
    for direction in (1.0, -1.0):
        response = pl.plot.device_response(device, cells=2, pulses=1, points=1)
        assert response.weights.shape == (3, 2)
        tile = pl.Tile(
            1,
            1,
            pl.SingleConfig(
                device=device,
                update=pl.UpdateParameters(
                    desired_bl=1, update_management=False, update_bl_management=False
                ),
            ),
        )
        before = tile.weights.copy()
        tile.update(np.ones((1, 1), np.float32), np.full((1, 1), -direction, np.float32), lr=1.0)
        steps.append(float((tile.weights - before)[0, 0]))
    assert steps[0] > 0.0 > steps[1]
    if name != "ReRamES":  # an exponential fit whose steps at 0 are what they are
        np.testing.assert_allclose(np.abs(steps), device.dw_min, rtol=1e-4)


@pytest.mark.parametrize("name", presets.names())
@pytest.mark.parametrize("kind", ["Single", "LRTT"])
def test_configurations_make_tiles(name: str, kind: str) -> None:
    config = getattr(presets, f"{name}{kind}")()
    assert config.forward.inp_res == pytest.approx(1 / 126)
    assert config.forward.out_bound == 20.0
    tile = pl.Tile(20, 30, config, seed=1)
    x = np.random.default_rng(0).standard_normal((4, 30)).astype(np.float32)
    d = tile.forward(x)
    tile.update(x, d, lr=0.01)
    assert np.isfinite(tile.weights).all()
    assert tile.statistics()["pulses"] > 0


def test_settings_can_be_changed() -> None:
    config = presets.EcRamLRTT(rank=4, transfer_every=7, fast=presets.Idealized(dw_min_std=0.0))
    assert (config.rank, config.transfer_every) == (4, 7)
    assert config.visible == presets.EcRam()
    assert config.fast.dw_min_std == 0.0
    assert presets.lrtt("ecram", 4, transfer_every=7).visible == presets.EcRam()
    assert presets.single("EcRam").device == presets.EcRam()


def test_presets_are_among_the_devices() -> None:
    assert pl.devices.EcRam() == presets.EcRam()


def test_unknown_names_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no device preset 'EcRom'; there are Idealized, "):
        presets.device("EcRom")
    with pytest.raises(pl.ConfigError, match="dw_mni"):
        presets.EcRam(dw_mni=1.0)
