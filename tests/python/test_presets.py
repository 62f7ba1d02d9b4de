"""Device presets: their numbers, that they make tiles, and that configurations use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import pulsora as pl
from pulsora import presets
from pulsora.plot import device_response

if TYPE_CHECKING:
    from collections.abc import Iterator

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

# dw_min, its logarithm's spread, cycle noise, spreads of the bounds at 1 and -1, and write noise.
ARRAYS = {
    "ReRamArrayOM": (0.0949, 0.7829, 0.4158, 0.3499, 0.5695, 1.4113),
    "ReRamArrayHfO2": (0.4622, 0.7125, 0.2174, 0.4295, 0.599, 0.5841),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_measured_arrays_have_few_states_and_log_normal_steps(name: str) -> None:
    device = presets.device(name.lower())
    assert device == getattr(pl.devices, name)()
    found = [device.dw_min, device.dw_min_dtod, device.dw_min_std]
    found += [device.w_max_dtod, device.w_min_dtod, device.write_noise_std]
    np.testing.assert_allclose(found, ARRAYS[name], rtol=1e-6)
    assert (device.w_max, device.w_min, device.mult_noise) == (1.0, -1.0, False)
    assert device.reference_std == pytest.approx(0.05)
    assert device.subtract_symmetry_point
    config = getattr(presets, f"{name}Single")()
    assert config == presets.single(name)
    # Steps at 0 without references.
    plain = config.replace(device=device.replace(subtract_symmetry_point=False, reference_std=0.0))
    steps = np.log(pl.Tile(200, 100, plain, seed=1).describe_cells()["step_up"])
    assert steps.mean() == pytest.approx(np.log(device.dw_min), abs=0.02)
    assert steps.std() == pytest.approx(device.dw_min_dtod, rel=0.02)
    tile = pl.Tile(200, 100, config, seed=1)
    x = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    tile.update(x, tile.forward(x), lr=0.5)
    assert tile.statistics()["pulses"] > 0


def test_every_preset_is_tested() -> None:
    assert set(presets.names()) == set(NUMBERS)
    assert set(presets.ONE_SIDED) == {"PCM"}
    assert set(presets.COARSE) == set(ARRAYS)


def test_phase_change_memory_grows_and_serves_in_pairs() -> None:
    device = presets.device("pcm")
    assert device == pl.devices.PCM()
    found = [device.dw_min, device.w_max, device.w_min, device.dw_min_std, device.a_up]
    np.testing.assert_allclose(found, [0.01, 2.0, 0.0, 0.6, -27.235], rtol=1e-6)
    config = presets.PCMPair()
    assert config == presets.one_sided("PCM")
    assert (config.refresh_every, config.units_in_mbatch) == (1, True)
    rng = np.random.default_rng(1)
    target = rng.uniform(-1.0, 1.0, (6, 10)).astype(np.float32)
    tile = pl.Tile(6, 10, config, seed=1)
    for _ in range(600):
        x = rng.standard_normal((8, 10)).astype(np.float32)
        tile.update(x, (tile.forward(x) - x @ target.T) / 8, 0.1)
    # One pulse at weight 0 is 0.28 of such a weight, with noise, so that much error is left.
    assert np.corrcoef(tile.weights.ravel(), target.ravel())[0, 1] > 0.5


SIX = ("Idealized", "EcRam", "EcRamMO", "Capacitor", "ReRamES", "ReRamSB")


@pytest.mark.parametrize("name", SIX)
def test_pairs_and_quads_pulse_one_array_at_random(name: str) -> None:
    for count, word in ((2, "Pair"), (4, "Quad")):
        make = getattr(presets, f"{name}{word}")
        config = make(update=pl.UpdateParameters(desired_bl=7))
        assert make.__name__ == f"{name}{word}"
        assert config.devices == (presets.device(name),) * count
        assert config.update_policy == "single_random"
        assert config.forward == presets.io()
        assert config.update.desired_bl == 7
        assert pl.Tile(3, 4, config).config == config
    with pytest.raises(pl.ConfigError, match="9 devices"):
        presets.vector(name, 9)


@pytest.mark.parametrize("name", presets.names())
def test_numbers(name: str) -> None:
    device = presets.device(name)
    model, *numbers = NUMBERS[name]
    assert device.model == model
    found = [device.dw_min, device.w_max, device.w_min, device.dw_min_std]
    np.testing.assert_allclose(found, numbers, rtol=1e-6)


def nominal(name: str) -> Any:  # noqa: ANN401 - the parameters differ from model to model
    """The preset without spreads and noise."""
    device = presets.device(name)
    spreads = [n for n in device.to_dict() if n.endswith(("_dtod", "_noise_std"))]
    return device.replace(**dict.fromkeys([*spreads, "dw_min_std", "lifetime"], 0.0))


@pytest.mark.parametrize("name", presets.names())
def test_property_35_first_pulses_from_zero(name: str) -> None:
    """At weight 0 both directions step by dw_min: fits were shifted to their symmetry point."""
    device = nominal(name)
    one_pulse = pl.UpdateParameters(
        desired_bl=1, update_management=False, update_bl_management=False
    )
    tile = pl.Tile(1, 2, pl.SingleConfig(device=device, update=one_pulse))
    tile.update(np.array([[-1.0, 1.0]], np.float32), np.ones((1, 1), np.float32), lr=1.0)
    up, down = tile.weights[0]
    assert up > 0.0 > down
    if name != "ReRamES":  # a fit that is not symmetric at 0
        np.testing.assert_allclose([up, -down], device.dw_min, rtol=1e-5)


@pytest.mark.parametrize("name", ["EcRam", "EcRamMO", "Capacitor", "SixT1C"])
def test_property_35_linear_presets_follow_the_recursion(name: str) -> None:
    """w <- w + s (1 - gamma w / w_max) upwards, and its mirror image downwards; 300 pulses each."""
    device = nominal(name)
    response = device_response(device, cells=1, pulses=300, points=300)
    w = device.w_min
    curve = [w]
    for up in [True] * 300 + [False] * 300:
        if up:
            w += device.dw_min * (1.0 - device.gamma_up * w / device.w_max)
        else:
            w -= device.dw_min * (1.0 - device.gamma_down * w / device.w_min)
        w = min(max(w, device.w_min), device.w_max)
        curve.append(w)
    np.testing.assert_allclose(response.weights[:, 0], curve, atol=1e-5)


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
    with pytest.raises(
        ValueError, match=r"'EcRom', .*; did you mean 'EcRam'.*presets: Idealized, "
    ):
        presets.device("EcRom")
    with pytest.raises(pl.ConfigError, match="dw_mni"):
        presets.EcRam(dw_mni=1.0)


class Change(NamedTuple):
    """A transfer: what was sent, how the weights W + alpha A B moved, and its account."""

    sent: np.ndarray
    effective: np.ndarray
    statistics: dict[str, float]
    tolerance: float


def transfers(name: str, **settings: object) -> Iterator[Change]:
    """Three transfers onto cells of a preset, without write noise."""
    cells = presets.device(name, write_noise_std=0.0)
    tile = pl.Tile(48, 96, pl.LRTTConfig(visible=cells, **settings), seed=1)
    rng = np.random.default_rng(1)
    tile.weights = 0.05 * rng.normal(size=(48, 96))
    one = np.ones((1, 96), np.float32), np.ones((1, 48), np.float32)
    tolerance = tile.explain(*one, 0.1).settings["transfer"].get("tolerance", 0.0)
    for _ in range(3):
        tile.adapter.a = 0.4 * rng.normal(size=(48, 16))
        before = np.array(tile.weights, np.float64)
        sent = before - tile.arrays["visible"]
        tile.adapter.transfer()
        yield Change(sent, tile.weights - before, tile.statistics()["last_transfer"], tolerance)


@pytest.mark.parametrize("name", presets.names())
def test_property_20_a_transfer_by_default_delivers_what_it_should(name: str) -> None:
    # The change of W and the rest in A are together transfer_lr A B, as far as products with B can
    # be that: what is missing is orthogonal to A B.
    for change in transfers(name):
        assert np.vdot(change.effective, change.sent) == pytest.approx(
            0.0, abs=0.01 * np.vdot(change.sent, change.sent)
        )
        assert change.statistics["outside_cells"] <= 0.003 * change.sent.size
        assert change.statistics["error"] <= change.tolerance


@pytest.mark.parametrize("name", presets.names())
def test_property_20_a_verified_transfer_delivers_what_it_should(name: str) -> None:
    # Without write noise, which moves the gain of one transfer by a few hundredths either way,
    # whatever was sent.
    for change in transfers(name, transfer_mode="verified"):
        assert change.statistics["gain"] == pytest.approx(1.0, abs=0.02)
