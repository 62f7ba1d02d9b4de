"""Tiles and models whose weights are programmed once, and drift."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pulsora as pl
from reference_inference import pcm


def weights_of(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """Weights with a spread like those of a layer."""
    rng = np.random.default_rng(seed)
    return (0.1 * rng.standard_normal((rows, cols))).astype(np.float32)


def made(rows: int = 12, cols: int = 20, **settings: object) -> pl.Tile:
    """A tile with weights."""
    tile = pl.Tile(rows, cols, pl.InferenceConfig(**settings), seed=5, tile_id=3)
    tile.weights = weights_of(rows, cols)
    return tile


@pytest.mark.parametrize("point", [(0, 0.0, 0), (7, 3600.0, 0), (2**40, 0.5, 9)])
def test_property_61_conductances_are_those_of_the_formulas(
    point: tuple[int, float, int],
) -> None:
    # The draws are known, so that numbers and not moments are compared.
    tile = made(stuck_low=0.05, stuck_high=0.02)
    number, time, redraw = point
    tile.programming.program(number)
    tile.programming.drift(time, redraw=redraw)
    assert tile.programming.point == (*point, 0)
    relative = tile.programming.written.astype(np.float64)
    relative /= np.abs(relative).max(axis=1, keepdims=True)
    target = 25.0 * np.stack([np.maximum(relative, 0), np.maximum(-relative, 0)], axis=-1)
    assert np.abs(tile.programming.conductances("target") - target).max() < 1e-5
    wanted = pcm(target.ravel(), seed=5, tile_id=3, point=point)
    is_low, is_high = wanted["stuck"] < np.float32(0.05), wanted["stuck"] >= np.float32(1 - 0.02)
    assert is_low.any()
    assert is_high.any()
    for which in ("programmed", "now"):
        expected = np.where(is_low, 0.0, np.where(is_high, 25.0, wanted[which]))
        found = tile.programming.conductances(which).ravel()  # type: ignore[arg-type]
        assert np.abs(found - expected).max() < 2e-4
    pairs = tile.programming.conductances().astype(np.float64)
    scale = np.abs(weights_of(12, 20)).max(axis=1, keepdims=True)
    factors = np.array(tile.programming.compensation)[:, np.newaxis]
    expected = factors * scale * (pairs[..., 0] - pairs[..., 1]) / 25
    assert np.abs(tile.weights - expected).max() < 1e-6


def test_reads_see_the_weights_until_they_are_programmed() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    tile = made(forward=perfect)
    x = np.random.default_rng(1).standard_normal((4, 20)).astype(np.float32)
    w = weights_of(12, 20)
    assert tile.programming.point is None
    assert np.abs(tile.forward(x) - x @ w.T).max() < 1e-6
    assert np.abs(tile.backward(x[:, :12]) - x[:, :12] @ w).max() < 1e-6
    tile.programming.program()
    seen = tile.weights
    assert np.abs(tile.forward(x) - x @ seen.T).max() < 1e-6
    assert np.abs(tile.backward(x[:, :12]) - x[:, :12] @ seen).max() < 1e-6
    assert 0.02 < np.abs(seen - w).max() / np.abs(w).max() < 0.5
    assert np.array_equal(tile.programming.written, w)
    tile.programming.unprogram()
    assert np.array_equal(tile.weights, w)


@pytest.mark.parametrize("reference", ["digital", "column"])
def test_a_single_device_has_a_reference(reference: str) -> None:
    exact = pl.noise_models.PCMLike(prog_noise_scale=0, read_noise_scale=0, drift_scale=0)
    tile = made(noise_model=exact, cell="single", cell_reference=reference)
    tile.programming.program()
    assert np.abs(tile.weights - tile.programming.written).max() < 1e-6
    noisy = made(cell="single", cell_reference=reference, compensation="none")
    noisy.programming.program()
    error = noisy.weights - noisy.programming.written
    # The error of a column is the same for all cells of an input, that of the cells is not.
    common = error / np.abs(noisy.programming.written).max(axis=1, keepdims=True)
    shared = np.var(common.mean(axis=0)) / np.var(common)
    assert (shared > 0.3) == (reference == "column")


def test_a_copied_tile_goes_on() -> None:
    tile = made()
    tile.programming.program(4)
    tile.programming.drift(1e4)
    x = np.ones((2, 20), dtype=np.float32)
    tile.forward(x)
    twin = copy.deepcopy(tile)
    assert np.array_equal(tile.forward(x), twin.forward(x))
    assert twin.programming.point == tile.programming.point


def test_property_63_parts_and_a_saved_tile_see_the_weights_of_their_mini_batch() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    settings = {"forward": perfect, "modifier": "add_normal", "drop_connect": 0.1}
    whole, parts = made(**settings), made(**settings)
    x = np.random.default_rng(1).standard_normal((9, 20)).astype(np.float32)
    whole.forward(x[:2])
    saved = made(**settings)
    saved.forward(x[:2])
    y = whole.forward(x)
    parts.forward(x[:2])
    other = pl.Tile.from_state(parts.state())
    assert np.array_equal(parts.forward(x[:4], first=0, of=9), y[:4])
    assert np.array_equal(other.forward(x[4:], first=4, of=9), y[4:])
    d = x[:, :12].copy()
    again = pl.Tile.from_state(whole.state())  # between the forward and the backward read
    assert np.array_equal(again.backward(d), whole.backward(d))
    assert not np.array_equal(saved.backward(d), whole.backward(d))


def test_compensation_gives_back_what_all_devices_lose() -> None:
    lost = {}
    for rule in ("none", "global", "per_output", "exact_reference"):
        tile = made(200, 200, compensation=rule)
        tile.programming.program()
        tile.programming.drift(3.15e7)
        lost[rule] = tile.programming.statistics()["weight_error"]
    assert lost["none"] > 0.4
    assert max(lost[rule] for rule in lost if rule != "none") < 0.25


def test_compensation_reads_bits_that_are_added_by_one_conversion() -> None:
    # A line of 1 is converted once, by the steps of the ADC: as in a read of one pass.
    factors = {}
    for rule in ("one_pass", "bit_serial", "bit_serial_analog_sum"):
        io = pl.IOParameters(
            mv_type=rule, inp_res=254, out_res=40, out_bound=2.0, out_noise=0.0,
            out_nonlinearity=0.2, out_asymmetry=0.1, bound_management="none",
        )  # fmt: skip
        tile = made(forward=io)
        tile.programming.program()
        tile.programming.drift(1e6)
        factors[rule] = tile.programming.compensation
    assert factors["bit_serial_analog_sum"] == factors["one_pass"] == factors["bit_serial"]
    assert factors["one_pass"] != made(forward=io.replace(out_res=0.0)).programming.compensation


def test_programming_zeros_warns() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig())
    with pytest.warns(UserWarning, match="all weights are 0"):
        tile.programming.program()
    assert not tile.weights.any()


def test_bad_arguments_name_value_and_remedy() -> None:
    tile = made()
    for number in (-1, 0.5, 2**47):
        with pytest.raises(pl.ConfigError, match="number"):
            tile.programming.program(number)  # type: ignore[arg-type]
    with pytest.raises(pl.StateError, match=r"program\(\)"):
        tile.programming.drift(1.0)
    with pytest.raises(pl.StateError, match=r"program\(\)"):
        tile.programming.conductances()
    tile.programming.program()
    for time in (-1.0, np.nan, np.inf, "soon"):
        with pytest.raises(pl.ConfigError, match="time"):
            tile.programming.drift(time)  # type: ignore[arg-type]
    with pytest.raises(pl.ConfigError, match="which"):
        tile.programming.conductances("later")  # type: ignore[arg-type]
    tile.weights = weights_of(12, 20, 1)
    assert tile.programming.is_stale
    assert "compensation" not in tile.statistics()
    with pytest.raises(pl.StateError, match="program it again"):
        tile.forward(np.ones(20, dtype=np.float32))
    for settings, text in (
        ({"significance": [1, 2]}, "choose cell='pairs'"),
        ({"cell_reference": "column"}, "choose cell='single'"),
        ({"stuck_low": 0.7, "stuck_high": 0.7}, "sum"),
        ({"noise_model": {"model": "PCM"}}, "not a noise model"),
        ({"noise_model": pl.noise_models.PCMLike}, r"did you mean\s+PCMLike\(\)"),
    ):
        with pytest.raises(pl.ConfigError, match=text):
            pl.InferenceConfig(**settings)
    assert pl.Tile(2, 2, pl.SingleConfig()).programming is None


def test_configurations_survive_a_dictionary() -> None:
    config = pl.InferenceConfig(
        noise_model=pl.noise_models.Hermes(num_devices=1, g_max=10.35, t_0=200),
        cell="pairs",
        significance=[1, 4],
    )
    assert pl.config.TileConfig.from_dict(config.to_dict()) == config
    values = config.noise_model.to_dict()
    assert pl.noise_models.NoiseModel.from_dict(values) == config.noise_model
    with pytest.raises(pl.ConfigError, match=r"NoiseModel\.from_dict"):
        pl.noise_models.PCMLike.from_dict(values)


def test_a_tile_that_is_unprogrammed_after_reads_is_saved_as_it_is() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig(), seed=2)
    tile.weights = np.full((3, 4), 0.1, np.float32)
    tile.programming.program(3)
    tile.forward(np.ones((5, 4), np.float32))
    tile.programming.unprogram()
    saved = tile.state()
    assert pl.Tile.from_state(saved).state().values == saved.values
