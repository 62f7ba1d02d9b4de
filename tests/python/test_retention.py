"""Pulsed arrays that drift: formulas in numpy, ages, training at an age, refusals."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from pulsora import noise_models
from reference_inference import bits_of, key_for, normals
from reference_random import Purpose, make_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SEED, TILE_ID = 5, 3
STREAM_OF_CELLS = {"visible": 0, "fast_a": 1, "fast_b": 2}
G_MAX, G_MIN = 20.0, 2.0
POWER = noise_models.PowerLaw(
    g_max=G_MAX, g_min=G_MIN, g=[0.0, 0.4, 1.0], sigma=[0.5, 0.5, 0.5], nu_mean=[0.09, 0.05, 0.04],
    nu_std=[0.03, 0.02, 0.01], read_noise=[0.03, 0.02, 0.01], t_0=30.0, t_read=1e-6,
)  # fmt: skip
LEAK = noise_models.Exponential(
    g_max=G_MAX, g_min=G_MIN, rest=11.0, g=[0.0, 1.0], sigma=[0.5, 0.5], tau=[3e4, 6e4],
    tau_std=[0.3, 0.1], read_noise=[0.02, 0.01],
)  # fmt: skip
PERFECT = {
    "forward": pl.IOParameters(is_perfect=True),
    "backward": pl.IOParameters(is_perfect=True),
}


def trained(config: pl.TileConfig, steps: int = 3, **options: Any) -> pl.Tile:
    """A tile whose cells have been written and pulsed."""
    tile = pl.Tile(11, 14, config, seed=SEED, tile_id=TILE_ID, **options)
    rng = np.random.default_rng(1)
    tile.weights = rng.uniform(-0.15, 0.15, (11, 14)).astype(np.float32)
    for _ in range(steps):
        x = rng.standard_normal((8, 14)).astype(np.float32)
        d = rng.standard_normal((8, 11)).astype(np.float32)
        tile.forward(x)
        tile.backward(d)
        tile.update(x, d, 0.05)
    return tile


def power_law(
    g: NDArray[np.float64], time: float, kept: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Conductances after drift by POWER, and the deviation of their read noise."""
    share = g / G_MAX
    nu = np.interp(share, [0, 0.4, 1], [0.09, 0.05, 0.04])
    nu = np.abs(nu + np.interp(share, [0, 0.4, 1], [0.03, 0.02, 0.01]) * kept)
    drifted = g * (1 + time / 30.0) ** -nu
    noise = np.interp(share, [0, 0.4, 1], [0.03, 0.02, 0.01])
    return drifted, drifted * noise * np.sqrt(np.log((time + 30.0 + 1e-6) / 2e-6))


def exponential(
    g: NDArray[np.float64], time: float, kept: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Conductances after drift by LEAK, and the deviation of their read noise."""
    share = g / G_MAX
    rate = np.exp((0.3 - 0.2 * share) * kept) / (3e4 + 3e4 * share)
    drifted = 11.0 + (g - 11.0) * np.exp(-rate * time)
    return drifted, drifted * (0.02 - 0.01 * share)


LAWS = {"PowerLaw": power_law, "Exponential": exponential}


def aged(
    weights: NDArray[np.float32],
    model: pl.noise_models.NoiseModel,
    cell: str,
    age: tuple[float, int],
    limits: tuple[NDArray[np.float32], NDArray[np.float32]],
    array: str = "visible",
    seed_of_cells: int = SEED,
) -> NDArray[np.float64]:
    """The weights that a read sees by docs/reference/retention.md, for a range of 1."""
    time, redraw = age
    w = weights.astype(np.float64).ravel()
    scale = np.maximum(1.0, np.abs(w))
    relative = w / scale
    shares = {
        "pair": [np.maximum(relative, 0), np.maximum(-relative, 0)],
        "two_sided_pair": [(1 + relative) / 2, (1 - relative) / 2],
        "single": [(1 + relative) / 2],
    }[cell]
    target = G_MIN + (G_MAX - G_MIN) * np.stack(shares, axis=1).ravel()
    stream = STREAM_OF_CELLS[array]
    kept = normals(make_key(seed_of_cells, TILE_ID, stream), Purpose.DRIFT, target.size, 0)
    own = make_key(SEED, TILE_ID, stream)
    reading = key_for(key_for(own, bits_of(time)), redraw)
    drifted, sigma = LAWS[model.model](target, time, kept)
    seen = np.maximum(drifted + sigma * normals(reading, Purpose.PROGRAM, target.size, 0), 0)
    g = ((seen - G_MIN) / (G_MAX - G_MIN)).reshape(w.size, -1)
    made = 2 * g[:, 0] - 1 if cell == "single" else g[:, 0] - g[:, 1]
    found = (scale * made).reshape(weights.shape)
    clipped: NDArray[np.float64] = np.clip(found, limits[1], limits[0])
    return clipped


def limits_of(tile: pl.Tile, array: str = "visible") -> tuple[Any, Any]:
    """The bounds of the cells of an array."""
    cells = tile.describe_cells(array)
    return cells["w_max"], cells["w_min"]


@pytest.mark.parametrize("cell", ["pair", "two_sided_pair", "single"])
@pytest.mark.parametrize("model", [POWER, LEAK], ids=["power law", "leak"])
@pytest.mark.parametrize("age", [(60.0, 0), (3e5, 7)])
def test_property_69_an_aged_array_is_that_of_the_formulas(
    cell: str, model: pl.noise_models.NoiseModel, age: tuple[float, int]
) -> None:
    # The draws are known, so that numbers and not moments are compared.
    device = pl.devices.ConstantStep(dw_min=0.01, w_max=1.0, w_min=-0.9)
    config = pl.SingleConfig(device=device, retention=model, retention_cell=cell, **PERFECT)
    tile = trained(config)
    stored = tile.weights.copy()
    stored[:4] = np.where(stored[:4] > 0, 2.0, -2.0)
    with pytest.warns(UserWarning, match="outside the bounds"):
        tile.weights = stored
    stored = tile.weights.copy()
    tile.retention.drift(age[0], redraw=age[1])
    expected = aged(stored, model, cell, age, limits_of(tile))
    assert np.abs(tile.weights - expected).max() < 1e-5
    assert np.abs(tile.weights - stored).max() > 1e-3
    assert (np.abs(stored) > 1.0).any()  # beyond the range, within the bounds of its cell
    x = np.eye(14, dtype=np.float32)
    assert np.abs(tile.forward(x, evaluation=True).T - expected).max() < 1e-5
    assert tile.retention.ages == {"visible": age}
    tile.retention.drift(0.0)
    assert np.array_equal(tile.weights, stored)


def test_property_69_arrays_of_an_adapter_age_by_their_own_models() -> None:
    device = pl.devices.ConstantStep(dw_min=0.01, w_max=1.0, w_min=-1.0)
    config = pl.LRTTConfig(
        rank=3, transfer_every=0, visible=device, fast=device, retention=POWER,
        retention_fast=LEAK, chopper="reinit", reference="symmetric_point", **PERFECT,
    )  # fmt: skip
    tile = trained(config)
    stored = {name: tile.arrays[name].copy() for name in tile.arrays}
    age = (1e4, 2)
    tile.retention.drift(age[0], redraw=age[1])
    assert set(tile.retention.ages) == {"visible", "fast_a", "fast_b"}
    assert tile.retention.models == {
        "visible": "PowerLaw", "fast_a": "Exponential", "fast_b": "Exponential",
    }  # fmt: skip
    for name, model in (("visible", POWER), ("fast_b", LEAK)):
        expected = aged(stored[name], model, "pair", age, limits_of(tile, name), name)
        assert np.abs(tile.arrays[name] - expected).max() < 1e-5
    # The columns of A have signs; their cells drift without them.
    either = [
        sign * aged(sign * stored["fast_a"], LEAK, "pair", age, (np.float32(9), np.float32(-9)),
                    "fast_a")
        for sign in (1, -1)
    ]  # fmt: skip
    differences = [np.abs(tile.arrays["fast_a"] - each).max(axis=0) for each in either]
    assert np.minimum(*differences).max() < 1e-5
    alpha = tile.explain(np.ones((1, 14)), np.ones((1, 11)), 0.1)["alpha"]
    whole = tile.arrays["visible"] + alpha * tile.arrays["fast_a"] @ tile.arrays["fast_b"]
    assert np.abs(tile.weights - whole).max() < 1e-5


def test_property_69_other_noise_leaves_what_cells_keep() -> None:
    device = pl.devices.ConstantStep(dw_min=0.01, w_max=1.0, w_min=-1.0)
    law = POWER.replace(read_noise=[0.0, 0.0, 0.0])
    config = pl.SingleConfig(device=device, retention=law, **PERFECT)
    tile = trained(config)
    tile.retention.drift(1e5)
    before = tile.weights.copy()
    tile.reseed(99, cells=False)
    assert tile.retention.ages["visible"].time == 1e5
    assert np.array_equal(tile.weights, before)
    fixed = config.replace(device=device.replace(construction_seed=8))
    tiles = [pl.Tile(11, 14, fixed, seed=seed) for seed in (1, 2)]
    for each in tiles:
        each.weights = np.full((11, 14), 0.2)
        each.retention.drift(1e5)
    assert np.array_equal(tiles[0].weights, tiles[1].weights)


def test_exponents_have_the_mean_and_the_spread_of_the_model() -> None:
    # 10000 cells at one weight: 5 standard errors of the mean and of the standard deviation.
    law = noise_models.PowerLaw(nu_mean=[0.06, 0.06], nu_std=[0.01, 0.01], t_0=1.0)
    device = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
    tile = pl.Tile(100, 100, pl.SingleConfig(device=device, retention=law), seed=2)
    tile.weights = np.full((100, 100), 0.3, np.float32)
    tile.retention.drift(np.e**10 - 1)
    nu = -np.log(tile.weights.astype(np.float64) / np.float32(0.3)) / 10
    assert abs(nu.mean() - 0.06) < 5 * 0.01 / 100
    assert abs(nu.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * 10000)


def test_reads_at_an_age_have_the_same_bits_in_any_order() -> None:
    config = pl.SingleConfig(retention=POWER, forward=pl.IOParameters(out_noise=0.1))
    x = np.random.default_rng(3).standard_normal((5, 14)).astype(np.float32)
    one, other = trained(config), trained(config, threads=1)
    one.retention.drift(60.0)
    wanted = one.forward(x, evaluation=True)
    other.retention.drift(1.0)
    other.forward(x, evaluation=True)
    other.retention.drift(60.0)
    assert np.array_equal(wanted, other.forward(x, evaluation=True))


@pytest.mark.parametrize("way", ["copy", "pickle", "state"])
def test_an_age_is_kept_and_training_goes_on_to_the_bit(way: str) -> None:
    config = pl.LRTTConfig(rank=2, transfer_every=2, retention=POWER, retention_fast=LEAK)
    tile = trained(config)
    tile.retention.drift(1e4, redraw=1)
    if way == "copy":
        twin = copy.deepcopy(tile)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(tile))  # noqa: S301 - made here
    else:
        twin = pl.Tile.from_state(pl.state.loads(pl.state.dumps(tile.state())))
    assert twin.retention.ages == tile.retention.ages
    rng = np.random.default_rng(4)
    for _ in range(3):
        x, d = (rng.standard_normal((4, n)).astype(np.float32) for n in (14, 11))
        for each in (tile, twin):
            each.update(x, d, 0.1)
        assert np.array_equal(tile.weights, twin.weights)
    assert tile.retention.ages == twin.retention.ages


def test_time_goes_on_from_the_age_of_each_array() -> None:
    config = pl.LRTTConfig(rank=2, transfer_every=0, retention=POWER, retention_fast=LEAK)
    tile = trained(config)
    tile.retention.drift(1000.0)
    tile.update(np.ones((1, 14)), np.ones((1, 11)), 0.1)
    tile.retention.elapse(500.0)
    ages = {name: age.time for name, age in tile.retention.ages.items()}
    assert ages == {"visible": 1500.0, "fast_a": 500.0, "fast_b": 500.0}
    twin = trained(config)
    twin.retention.drift(1500.0)
    assert np.array_equal(tile.arrays["visible"], twin.arrays["visible"])


def test_arrays_may_be_older_than_the_models_of_other_arrays_reach() -> None:
    config = pl.LRTTConfig(
        rank=2, transfer_every=0, retention=POWER, retention_fast=noise_models.ReRamWan2022()
    )
    tile = trained(config)
    tile.retention.drift(150000.0)
    tile.update(np.ones((1, 14)), np.ones((1, 11)), 0.1)
    tile.retention.elapse(100000.0)  # ReRamWan2022 has numbers up to 172800 s
    ages = {name: age.time for name, age in tile.retention.ages.items()}
    assert ages == {"visible": 250000.0, "fast_a": 100000.0, "fast_b": 100000.0}
    with pytest.raises(pl.ConfigError, match="time is 200000 s, but the retention ReRamWan2022"):
        tile.retention.elapse(100000.0)
    assert {name: age.time for name, age in tile.retention.ages.items()} == ages


# --- refusals

REFUSED: list[tuple[str, Callable[[], object], str]] = [
    (
        "floating point", lambda: pl.IdealConfig(retention=POWER),  # type: ignore[call-arg]
        "IdealConfig has no parameter 'retention'",
    ),
    (
        "programmed arrays", lambda: pl.InferenceConfig(retention=POWER),  # type: ignore[call-arg]
        "InferenceConfig has no parameter 'retention'",
    ),
    (
        "fast arrays without any",
        lambda: pl.SingleConfig(retention_fast=POWER),  # type: ignore[call-arg]
        "SingleConfig has no parameter 'retention_fast'",
    ),
    (
        "a class",
        lambda: pl.SingleConfig(retention=noise_models.PowerLaw),  # type: ignore[arg-type]
        "SingleConfig.retention is PowerLaw itself, not an object of it; did you mean PowerLaw()?",
    ),
    (
        "a time", lambda: pl.SingleConfig(retention=46505.0),  # type: ignore[arg-type]
        "retention is 46505; write a noise model such as Exponential(), or None",
    ),
    (
        "an unknown model",
        lambda: pl.SingleConfig(retention={"model": "Leak"}),  # type: ignore[arg-type]
        "retention.model is 'Leak', which is not a noise model",
    ),
    (
        "a device",
        lambda: pl.SingleConfig(retention=pl.devices.SoftBounds()),  # type: ignore[arg-type]
        "retention.model is 'SoftBounds', which is not a noise model",
    ),
    (
        "cells without a model", lambda: pl.VectorConfig(retention_cell="single"),
        "retention_cell is 'single', but VectorConfig.retention is None; give a noise model",
    ),
    (
        "an unknown cell",
        lambda: pl.SingleConfig(retention=POWER, retention_cell="pairs"),  # type: ignore[arg-type]
        "retention_cell is 'pairs'",
    ),
    (
        "updates beyond the bounds",
        lambda: trained(
            pl.SingleConfig(retention=POWER, update=pl.UpdateParameters(pulse_type="none"))
        ),
        "retention is PowerLaw, but update.pulse_type is 'none', which ignores the bounds",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_bad_configuration_names_the_remedy(call: Callable[[], object], message: str) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        call()
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.drift(-1.0), "time is -1; give seconds since the last pulse, a finite number"),
        (lambda a: a.drift(float("nan")), "time is nan; give seconds since the last pulse"),
        (lambda a: a.drift(1e9), "time is 1e+09 s, but the retention ReRamWan2022 has numbers up"),
        (lambda a: a.drift(1.0, redraw=-1), "redraw is -1; it must be >= 0"),
        (lambda a: a.elapse(172800.0), "has numbers up to 172800 s; choose an earlier time"),
    ],
)
def test_a_refused_age_changes_nothing(call: Callable[[Any], object], message: str) -> None:
    tile = trained(pl.SingleConfig(retention=noise_models.ReRamWan2022()))
    assert tile.retention is not None
    tile.retention.drift(60.0)
    before = pl.state.dumps(tile.state())
    with pytest.raises(pl.ConfigError) as refusal:
        call(tile.retention)
    assert message in str(refusal.value)
    assert pl.state.dumps(tile.state()) == before


def test_configurations_with_a_retention_are_values() -> None:
    config = pl.LRTTConfig(retention=POWER, retention_fast=LEAK, retention_cell="two_sided_pair")
    assert pl.TileConfig.from_dict(config.to_dict()) == config
    assert config.replace(retention=None).retention is None
    assert "retention=PowerLaw(" in repr(config)
    assert pl.LRTTConfig().retention is None
    assert pl.Tile(3, 4, config).config == config
    assert str(config)
    frozen = pl.Tile(3, 4, config).config
    with pytest.raises(AttributeError):
        frozen.retention.g_max = 3.0
