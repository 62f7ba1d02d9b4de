"""Vector, reference and one-sided cells: which arrays are pulsed, written and read."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import D_SIZE, PERFECT, X_SIZE, make_batch, make_tile, same_bits, train
from reference_random import Purpose, draw, make_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

CELLS = pl.devices.SoftBounds(dw_min=0.002)
COARSE = pl.devices.ConstantStep(dw_min=0.005, w_max=1.0, w_min=-1.0)
UPDATE_OF_FIRST = 8
"""Number of the random stream of the first array's pulse trains (array/array_keys.h)."""


def arrays(tile: pl.Tile) -> list[Matrix]:
    return [array.copy() for array in tile.arrays.values()]


def changed(tile: pl.Tile, sample: int) -> list[int]:
    """The arrays that move in an update by one sample."""
    before = arrays(tile)
    x, d = make_batch(1, seed=sample)
    tile.update(x, 10.0 * d, 0.1)
    return [k for k, array in enumerate(arrays(tile)) if (array != before[k]).any()]


# --- vector


def test_one_array_with_factor_1_is_a_single_array_to_the_bit() -> None:
    single = make_tile(pl.SingleConfig(device=CELLS))
    for policy in ("all", "single_fixed", "single_sequential", "single_random"):
        vector = make_tile(pl.VectorConfig(devices=[CELLS], update_policy=policy))
        single = make_tile(pl.SingleConfig(device=CELLS))
        assert same_bits(train(vector, 4), train(single, 4)), policy


@pytest.mark.parametrize("read_io", ["shared", "per_array"])
def test_reads_and_weights_are_the_weighted_sum(read_io: str) -> None:
    gammas = (0.75, -0.5, 2.0)
    config = pl.VectorConfig(
        devices=[CELLS, COARSE, CELLS], gamma_vec=gammas, read_io=read_io, **PERFECT
    )
    tile = make_tile(config)
    rng = np.random.default_rng(3)
    for name in tile.arrays:
        tile.arrays[name] = rng.uniform(-0.3, 0.3, (D_SIZE, X_SIZE)).astype(np.float32)
    train(tile, 3)
    wanted = sum(gamma * array for gamma, array in zip(gammas, arrays(tile), strict=True))
    np.testing.assert_allclose(tile.weights, wanted, atol=1e-6)
    x, d = make_batch(5)
    np.testing.assert_allclose(tile.forward(x), x @ wanted.T, atol=1e-5)
    np.testing.assert_allclose(tile.backward(d), d @ wanted, atol=1e-5)


def test_reads_by_each_array_have_noise_of_each() -> None:
    """The deviation of a read of zero weights, from 4000 samples: 1, and the root of 1/2."""
    noisy = {"out_noise": 1.0, "noise_management": "none", "bound_management": "none"}
    io = pl.IOParameters(out_res=0.0, inp_res=0.0, out_bound=0.0, **noisy)
    x = np.ones((4000, X_SIZE), np.float32)
    for read_io, deviation in (("shared", 1.0), ("per_array", np.sqrt(0.5))):
        config = pl.VectorConfig(devices=[CELLS, CELLS], read_io=read_io, forward=io)
        read = make_tile(config).forward(x)
        error = 5.0 * deviation / np.sqrt(2 * read.size)
        assert abs(read.std() - deviation) < error, read_io


def test_policies_choose_the_arrays_of_a_sample() -> None:
    devices = [COARSE, COARSE, COARSE]
    tiles = {
        policy: make_tile(
            pl.VectorConfig(devices=devices, update_policy=policy, first_update_idx=2)
        )
        for policy in ("all", "single_fixed", "single_sequential")
    }
    assert [changed(tiles["all"], s) for s in range(3)] == [[0, 1, 2]] * 3
    assert [changed(tiles["single_fixed"], s) for s in range(3)] == [[2]] * 3
    assert [changed(tiles["single_sequential"], s) for s in range(7)] == [
        [2], [0], [1], [2], [0], [1], [2]
    ]  # fmt: skip


def test_random_choices_follow_the_contract_of_random_numbers_and_are_uniform() -> None:
    """Sample s goes to array floor(n u), u from word 0 of its block; 3000 samples at 5 sigma."""
    devices = [COARSE] * 3
    tile = make_tile(pl.VectorConfig(devices=devices, update_policy="single_random"), tile_id=4)
    key = make_key(5, 4, UPDATE_OF_FIRST)
    words = draw(key, Purpose.ARRAY_SELECT, 0, np.arange(3000))[..., 0].astype(np.uint64)
    choices = (words * np.uint64(3) >> np.uint64(32)).astype(int)
    assert [changed(tile, s) for s in range(40)] == [[k] for k in choices[:40]]
    counts = np.bincount(choices, minlength=3)
    assert (np.abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()


def test_pulses_of_a_sample_reach_the_mean_step_under_every_policy() -> None:
    """The mean change of W over 400 tiles of ideal cells: -lr d x / n of each pulsed array."""
    cell = pl.devices.ConstantStep(
        dw_min=0.001, **dict.fromkeys(("dw_min_dtod", "dw_min_std", "up_down_dtod"), 0.0)
    )
    x, d = np.full((1, 1), 0.5, np.float32), np.full((1, 1), -0.4, np.float32)
    for policy, share in (("all", 1.0), ("single_sequential", 0.5), ("single_random", 0.5)):
        moved = []
        for seed in range(400):
            config = pl.VectorConfig(devices=[cell, cell], update_policy=policy, **PERFECT)
            tile = pl.Tile(1, 1, config, seed=seed, threads=1)
            tile.update(x, d, 0.05)
            moved.append(float(tile.weights[0, 0]))
        error = 5.0 * np.std(moved) / np.sqrt(len(moved))
        assert abs(np.mean(moved) - share * 0.05 * 0.5 * 0.4) < error + 1e-7, policy


def test_weights_are_written_to_every_array_or_to_the_one_that_is_pulsed() -> None:
    w = np.full((D_SIZE, X_SIZE), 0.125, np.float32)
    every = make_tile(pl.VectorConfig(devices=[COARSE, COARSE]))
    every.weights = w
    assert all((array == w).all() for array in every.arrays.values())
    assert (every.weights == w).all()
    fixed = pl.VectorConfig(
        devices=[COARSE, CELLS], gamma_vec=[0.5, 1.0], update_policy="single_fixed",
        first_update_idx=1,
    )  # fmt: skip
    tile = make_tile(fixed)
    tile.weights = w
    assert fixed.facts.written == "devices[1]"
    assert (tile.arrays["array_0"] == 0).all()
    assert (tile.weights == w).all()


def test_a_sum_that_is_not_what_was_written_is_explained() -> None:
    x, d = make_batch(5)
    right = make_tile(pl.VectorConfig(devices=[CELLS, CELLS])).explain(x, d, 0.05)
    assert not any("gamma_vec" in text for text in right.warnings)
    config = pl.VectorConfig(devices=[CELLS, CELLS], gamma_vec=[1.0, 0.5])
    told = make_tile(config).explain(x, d, 0.05)
    assert any("1.5 times what was written" in text for text in told.warnings)


def test_settings_that_contradict_one_another_are_refused() -> None:
    two = [CELLS, CELLS]
    for settings, message in (
        ({"gamma_vec": [1.0]}, r"gamma_vec has 1 factors for 2 devices"),
        ({"gamma_vec": [0.0, 0.0]}, r"gamma_vec is 0 for every device"),
        ({"first_update_idx": 2}, r"first_update_idx is 2, but there are 2 devices"),
        ({"devices": [CELLS] * 9}, r"devices has 9 devices; give 1 to 8"),
    ):
        values: dict[str, Any] = {"devices": two} | settings
        with pytest.raises(pl.ConfigError, match=message):
            pl.VectorConfig(**values)


def test_layers_take_and_keep_biases_and_devices_of_lists() -> None:
    config = pl.VectorConfig(devices=[CELLS, COARSE.replace(perfect_bias=True)])
    assert list(config.named_devices()) == ["devices[0]", "devices[1]"]
    other = config.with_devices({"devices[1]": CELLS})
    assert other.devices == (CELLS, CELLS)
    assert config.devices[1].perfect_bias
    with pytest.raises(pl.ConfigError, match=r"no device 'devices\[2\]'"):
        config.with_devices({"devices[2]": CELLS})
    assert config.summary() == "VectorConfig(devices=[SoftBounds, ConstantStep])"


# --- reference


def test_references_stay_and_weights_are_differences() -> None:
    config = pl.ReferenceConfig(visible=CELLS, reference=COARSE)
    tile = make_tile(config)
    rng = np.random.default_rng(5)
    tile.arrays["reference"] = rng.uniform(-0.1, 0.1, (D_SIZE, X_SIZE)).astype(np.float32)
    w = rng.uniform(-0.1, 0.1, (D_SIZE, X_SIZE)).astype(np.float32)
    tile.weights = w
    np.testing.assert_allclose(tile.weights, w, atol=1e-7)
    before = tile.arrays["reference"].copy()
    train(tile, 3)
    assert (tile.arrays["reference"] == before).all()
    assert (tile.visible == tile.arrays["visible"]).all()
    np.testing.assert_allclose(tile.weights, tile.visible - before, atol=1e-7)


def test_zero_references_are_a_single_array_to_the_bit() -> None:
    single, reference = pl.SingleConfig(device=CELLS), pl.ReferenceConfig(visible=CELLS)
    assert same_bits(train(make_tile(reference), 4), train(make_tile(single), 4))


def test_references_at_symmetric_points_stop_the_drift_of_noise() -> None:
    """Gradients of mean 0 pull asymmetric cells to their symmetric point: W there is 0.

    The distance of W from 0 after 3000 samples, with references and without; cells lie between
    0.2 and 0.4 without them.
    """
    cell = pl.devices.SoftBounds(
        dw_min=0.01, dw_min_std=0.0, up_down=0.3, up_down_dtod=0.0, w_max=0.8, w_min=-0.8,
        w_max_dtod=0.0, w_min_dtod=0.0, dw_min_dtod=0.0,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    x = rng.choice([-1.0, 1.0], (3000, X_SIZE)).astype(np.float32)
    d = rng.choice([-0.3, 0.3], (3000, D_SIZE)).astype(np.float32)
    means = {}
    for start in ("zero", "symmetric_point"):
        config = pl.ReferenceConfig(
            visible=cell, reference=COARSE.replace(w_max_dtod=0.0, w_min_dtod=0.0),
            reference_start=start,
        )  # fmt: skip
        tile = make_tile(config)
        assert np.abs(tile.weights).max() < 1e-6
        tile.update(x, d, 0.1)
        means[start] = float(np.abs(tile.weights.mean()))
    assert means["zero"] > 0.1
    assert means["symmetric_point"] < 0.03


# --- one-sided


def pair(**settings: Any) -> pl.OneSidedConfig:
    cell = pl.devices.ConstantStep(
        dw_min=0.001, dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max=1.0, w_min=0.0,
        w_max_dtod=0.0, w_min_dtod=0.0, reset_std=0.0,
    )  # fmt: skip
    return pl.OneSidedConfig(device=cell, **(PERFECT | settings))


def test_one_sided_arrays_only_grow_until_they_are_refreshed() -> None:
    tile = make_tile(pair(refresh_every=0))
    tile.weights = np.linspace(-0.2, 0.2, D_SIZE * X_SIZE, dtype=np.float32).reshape(D_SIZE, X_SIZE)
    assert (np.minimum(tile.arrays["plus"], tile.arrays["minus"]) == 0).all()
    for step in range(4):
        before = arrays(tile)
        x, d = make_batch(5, seed=step)
        tile.update(x, d, 0.1)
        after = arrays(tile)
        assert all((now >= then).all() for now, then in zip(after, before, strict=True))
        assert any((now > then).any() for now, then in zip(after, before, strict=True))
        np.testing.assert_allclose(tile.weights, after[0] - after[1], atol=1e-7)


@pytest.mark.parametrize("units_in_mbatch", [True, False])
def test_a_refresh_writes_the_whole_difference_back(units_in_mbatch: bool) -> None:
    config = pair(refresh_every=1 if units_in_mbatch else 5, units_in_mbatch=units_in_mbatch)
    tile = make_tile(config)
    plus, minus = np.full((2, D_SIZE, X_SIZE), 0.5, np.float32)
    plus[0, 0], minus[0, 0] = 0.9, 0.3  # refreshed: 0.6 is 600 pulses
    plus[0, 1], minus[0, 1] = 0.3, 0.9
    plus[0, 2], minus[0, 2] = 0.9, 0.2  # the smaller one is low enough
    tile.arrays["plus"], tile.arrays["minus"] = plus, minus
    x, d = make_batch(5)
    tile.update(x, np.zeros_like(d), 0.1)
    found = np.stack(arrays(tile))[:, 0, :4]
    np.testing.assert_allclose(
        found, [[0.6, 0.0, 0.9, 0.5], [0.0, 0.6, 0.2, 0.5]], atol=0.5e-3 + 1e-6
    )
    assert tile.statistics()["refreshes"] == 1
    tile.weights = np.zeros((D_SIZE, X_SIZE), np.float32)
    assert (np.stack(arrays(tile)) == 0).all()


def test_refreshes_are_due_after_each_period_whatever_the_split() -> None:
    for size in (1, 3, 10):
        tile = make_tile(pair(refresh_every=4, units_in_mbatch=False))
        x, d = make_batch(30)
        for first in range(0, 30, size):
            tile.update(x[first : first + size], d[first : first + size], 0.1)
        assert tile.statistics()["refreshes"] == 30 // 4


def test_one_sided_cells_refuse_updates_without_pulses() -> None:
    for pulse_type in ("none", "none_with_device"):
        config = pair(update=pl.UpdateParameters(pulse_type=pulse_type))
        with pytest.raises(pl.ConfigError, match=rf"update.pulse_type is '{pulse_type}'"):
            make_tile(config)
    config = pair(refresh_update=pl.UpdateParameters(pulse_type="none"))
    with pytest.raises(pl.ConfigError, match=r"refresh_update.pulse_type is 'none'"):
        make_tile(config)


def test_every_kind_learns_a_matrix() -> None:
    """Linear regression on noisy cells ends within 0.3 of where it began."""
    rng = np.random.default_rng(2)
    target = rng.uniform(-0.3, 0.3, (D_SIZE, X_SIZE)).astype(np.float32)
    policies = ("all", "single_sequential", "single_random")
    configs: list[pl.TileConfig] = [
        pl.VectorConfig(devices=[CELLS, COARSE], update_policy=policy) for policy in policies
    ]
    configs += [pl.ReferenceConfig(visible=CELLS), pair()]
    for config in configs:
        tile = make_tile(config)
        for _ in range(600):
            x = rng.normal(size=(8, X_SIZE)).astype(np.float32)
            tile.update(x, (tile.forward(x) - x @ target.T) / 8, 0.1)
        error = np.linalg.norm(tile.weights - target) / np.linalg.norm(target)
        assert error < 0.3, (config.summary(), error)


# --- warnings

EXACT = {"w_max_dtod": 0.0, "w_min_dtod": 0.0}


@pytest.mark.parametrize(
    ("config", "weight"),
    [
        (pl.VectorConfig(devices=[COARSE, COARSE.replace(w_max=2.5)]), 3.0),
        (pl.VectorConfig(devices=[COARSE, COARSE]), -3.0),
        (pl.VectorConfig(devices=[COARSE, COARSE], update_policy="single_fixed"), 3.0),
        (pl.OneSidedConfig(device=pl.devices.PCM(**EXACT)), 3.0),
        (pl.OneSidedConfig(device=pl.devices.PCM(**EXACT)), -3.0),
    ],
)
def test_writes_beyond_the_bounds_warn(config: pl.TileConfig, weight: float) -> None:
    tile = make_tile(config)
    wanted = np.full((D_SIZE, X_SIZE), weight, np.float32)
    with pytest.warns(UserWarning, match="60 of 60 weights .* lie outside"):
        tile.weights = wanted
    lost = np.abs(tile.weights - wanted)
    assert (lost > 0.05).all()


@pytest.mark.parametrize(
    "config",
    [
        pl.VectorConfig(devices=[COARSE, COARSE]),
        pl.VectorConfig(
            devices=[COARSE, COARSE.replace(w_max=3.0, w_min=-3.0, **EXACT)],
            update_policy="single_fixed", first_update_idx=1, gamma_vec=[0.5, 1.0],
        ),
        pl.OneSidedConfig(device=pl.devices.PCM(**EXACT)),
    ],
)  # fmt: skip
def test_writes_within_the_bounds_do_not_warn(config: pl.TileConfig) -> None:
    tile = make_tile(config)
    most = 2.5 if config.kind == "vector" and config.gamma_vec else 0.3
    wanted = np.linspace(-most, most, D_SIZE * X_SIZE, dtype=np.float32).reshape(D_SIZE, X_SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tile.weights = wanted
    assert np.abs(tile.arrays[list(tile.arrays)[-1]]).max() > 0.9 * most


def test_a_layer_of_several_arrays_warns_once() -> None:
    layer = pl.nn.AnalogLinear(6, 5, bias=False, config=pl.VectorConfig(devices=[COARSE]))
    with pytest.warns(UserWarning, match="lie outside the bounds") as told:
        layer.set_weights(torch.full((5, 6), 3.0))
    assert len(told) == 1
