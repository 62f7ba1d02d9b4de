"""Reads in integers against the definition in docs/reference/io.md, with Python's own integers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLS, SAMPLES = 21, 37, 13
F32 = np.float32
# Cells without spread: no weight is beyond 0.6, so that e = 0.
DEVICE = pl.devices.ConstantStep(w_max=0.6, w_min=-0.6, w_max_dtod=0.0, w_min_dtod=0.0)
QUIET: dict[str, Any] = {"out_noise": 0.0}


def _rounded(value: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(value)


def _weights() -> NDArray[Any]:
    weights = np.random.default_rng(3).uniform(-0.6, 0.6, size=(ROWS, COLS)).astype(F32)
    weights[0, :3] = [0.6, -0.6, 0.0]
    return weights


def _read(w: NDArray[Any], x: NDArray[Any], io: pl.IOParameters, bits: int) -> NDArray[Any]:
    """y for one sample x, without noise: every step is one operation in single precision."""
    step = F32(2.0 * float(F32(io.inp_bound)) * float(F32(io.inp_res)))
    per_unit = F32(1.0 / (2.0 * float(F32(io.inp_bound)) * float(F32(io.inp_res))))
    most = round(float(F32(io.inp_bound)) / float(step))
    scale = np.abs(x).max()
    factor = 1
    while True:
        alpha = F32(scale * F32(factor))
        levels = [int(np.rint(F32(F32(v / alpha) * per_unit))) for v in x]
        levels = [min(max(n, -most), most) for n in levels]
        y = np.array([_line(row, levels, io, bits, step) for row in w], F32)
        over = F32(io.out_bound)
        clipped = bool((y > over).any() or (y < -over).any())
        if not clipped or factor >= 16:
            return np.asarray(np.clip(y, -over, over) * F32(alpha * F32(io.out_scale)))
        factor *= 2


def _line(
    row: NDArray[Any], levels: list[int], io: pl.IOParameters, bits: int, step: np.float32
) -> float:
    digits = [_rounded(Fraction(float(v)) * 2 ** (bits - 1)) for v in row]
    unit = F32(float(step) * 2.0 ** (1 - bits))

    def value(ns: list[int]) -> float:
        return float(F32(F32(sum(v * n for v, n in zip(digits, ns, strict=True))) * unit))

    if io.inp_asymmetry == 0.0:
        y = value(levels)
    else:
        plus = value([max(n, 0) for n in levels])
        minus = value([min(n, 0) for n in levels])
        gain = F32(F32(1.0) - F32(io.inp_asymmetry))
        y = float(
            F32(float(Fraction(float(gain)) * Fraction(float(minus)) + Fraction(float(plus))))
        )
    if y < 0.0:
        y = float(F32(F32(y) * F32(F32(1.0) - F32(io.out_asymmetry))))
    if io.out_res > 0.0:
        adc = 2.0 * float(F32(io.out_bound)) * float(F32(io.out_res))
        y = float(F32(np.rint(F32(F32(y) * F32(1.0 / adc))) * F32(adc)))
    return y


@pytest.mark.parametrize("bits", [24, 16])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"out_res": 0.0},
        {"inp_res": 1 / 20000, "out_res": 0.0},
        {"out_bound": 1.0},
        {"inp_asymmetry": 0.2, "out_asymmetry": 0.1, "out_res": 0.0},
        {"inp_bound": 0.8, "out_scale": 0.3},
    ],
)
def test_property_41_reads_equal_the_sum_of_pythons_integers(
    bits: int, settings: dict[str, Any]
) -> None:
    io = pl.IOParameters(weight_bits=bits, **(QUIET | settings))
    backward = pl.IOParameters(weight_bits=bits, bm_backward=True, **(QUIET | settings))
    config = pl.SingleConfig(device=DEVICE, forward=io, backward=backward)
    tile = pl.Tile(ROWS, COLS, config, seed=3)
    tile.weights = _weights()
    w = np.array(tile.weights)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SAMPLES, COLS)).astype(F32)
    d = rng.normal(size=(SAMPLES, ROWS)).astype(F32)
    y = np.array([_read(w, row, io, bits) for row in x])
    dx = np.array([_read(w.T, row, io, bits) for row in d])
    np.testing.assert_array_equal(np.asarray(tile.forward(x)), y)
    np.testing.assert_array_equal(np.asarray(tile.backward(d)), dx)


def test_a_loaded_state_reads_as_before() -> None:
    io = pl.IOParameters(weight_bits=24)
    config = pl.SingleConfig(device=pl.devices.SoftBounds(w_max_dtod=1.5), forward=io, backward=io)
    tiles = [pl.Tile(ROWS, COLS, config, seed=seed) for seed in (1, 1)]
    x = np.random.default_rng(0).normal(size=(SAMPLES, COLS)).astype(F32)
    with pytest.warns(UserWarning, match="outside the bounds"):
        tiles[0].weights = np.full((ROWS, COLS), 9.0, F32)
    tiles[1].load_state(tiles[0].state())
    np.testing.assert_array_equal(np.asarray(tiles[0].forward(x)), np.asarray(tiles[1].forward(x)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inp_noise": 0.1}, "inp_noise"),
        ({"inp_res": 0.0}, "continuous"),
        ({"inp_res": 1 / 127}, "whole number"),
        ({"inp_res": 40000}, "levels on each side"),
    ],
)
def test_weight_bits_are_refused_where_inputs_are_no_integers(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(pl.ConfigError, match=rf"(?s)weight_bits.*{words}"):
        pl.Tile(4, 5, pl.SingleConfig(forward=pl.IOParameters(weight_bits=24, **settings)))
    pl.Tile(4, 5, pl.SingleConfig(forward=pl.IOParameters(**settings)))


def test_weight_bits_are_refused_where_weights_have_no_bound() -> None:
    with pytest.raises(pl.ConfigError, match=r"(?s)weight_bits.*no bound"):
        pl.Tile(4, 5, pl.IdealConfig(forward=pl.IOParameters(weight_bits=24)))
    with pytest.raises(pl.ConfigError, match=r"weight_bits.*16, 24, 32"):
        pl.Tile(4, 5, pl.SingleConfig(forward=pl.IOParameters(weight_bits=20)))


reads = pl.IOParameters
EXACT = reads(is_perfect=True)


@pytest.mark.parametrize(
    ("config", "products"),
    [
        (pl.SingleConfig(), "integers of 24 bits"),
        (pl.LRTTConfig(rank=2), "integers of 24 bits"),
        (pl.TransferConfig(), "integers of 24 bits"),
        (pl.VectorConfig(), "integers of 24 bits"),
        (pl.SingleConfig(forward=reads(weight_bits=16)), "16 bits: forward; .* 24 bits: backward"),
        (pl.SingleConfig(backward=EXACT), "24 bits: forward; floating point .is_perfect.*: b"),
        (pl.SingleConfig(forward=reads(inp_noise=0.5)), "point .inp_noise is 0.5.: forward"),
        (pl.SingleConfig(forward=reads(weight_bits=32)), "weight_bits is 32.: forward"),
        (pl.LRTTConfig(rank=2, backward=EXACT), "visible forward, fast_a forward, fast_b forward;"),
        (pl.LRTTConfig(rank=2, inject_io="shared"), "floating point .inject_io is 'shared'.$"),
        (pl.IdealConfig(), "^floating point .is_perfect is true.$"),
        (pl.InferenceConfig(), "24 bits: forward; floating point .is_perfect.*: backward"),
        (pl.SingleConfig(update=pl.UpdateParameters(pulse_type="none")), "no bound"),
    ],
)  # fmt: skip
def test_explain_tells_what_products_are(config: pl.config.TileConfig, products: str) -> None:
    tile = pl.Tile(ROWS, COLS, config, seed=1)
    told = tile.explain(np.ones((1, COLS), F32), np.ones((1, ROWS), F32), 0.1)
    assert re.search(products, told["products"])


def test_integers_of_24_bits_are_the_default() -> None:
    x = np.random.default_rng(0).normal(size=(SAMPLES, COLS)).astype(F32)
    reads = {}
    for bits in ("auto", 24, 32):
        io = pl.IOParameters(weight_bits=bits, out_res=0.0, **QUIET)
        tile = pl.Tile(ROWS, COLS, pl.SingleConfig(device=DEVICE, forward=io), seed=3)
        tile.weights = _weights()
        reads[bits] = np.asarray(tile.forward(x))
    np.testing.assert_array_equal(reads["auto"], reads[24])
    assert not np.array_equal(reads["auto"], reads[32])


def _of_version_3(bits: int | str) -> pl.state.State:
    """The state of a tile that an earlier version saved, where "auto" meant floating point."""
    io = pl.IOParameters(weight_bits=bits, out_res=0.0, **QUIET)
    tile = pl.Tile(ROWS, COLS, pl.SingleConfig(device=DEVICE, forward=io), seed=3)
    tile.weights = _weights()
    state = tile.state()
    state.values["version"] = 3
    return state.signed()


def test_property_38_a_tile_of_an_earlier_version_goes_on_in_floating_point() -> None:
    x = np.random.default_rng(0).normal(size=(SAMPLES, COLS)).astype(F32)
    tile = pl.Tile.from_state(_of_version_3("auto"))
    assert (tile.config.forward.weight_bits, tile.config.backward.weight_bits) == (32, 32)
    expected = pl.Tile.from_state(_of_version_3(32)).forward(x)
    np.testing.assert_array_equal(np.asarray(tile.forward(x)), np.asarray(expected))
    again = pl.Tile.from_state(tile.state())
    assert again.config == tile.config
    kept = pl.Tile.from_state(_of_version_3(24))
    assert kept.config.forward.weight_bits == 24


@pytest.mark.parametrize("bits", ["auto", 32])
def test_a_state_of_an_earlier_version_loads_into_tiles_of_either_product(bits: int | str) -> None:
    io = pl.IOParameters(weight_bits=bits, out_res=0.0, **QUIET)
    config = pl.SingleConfig(device=DEVICE, forward=io, backward=pl.IOParameters(weight_bits=bits))
    tile = pl.Tile(ROWS, COLS, config, seed=3)
    tile.load_state(_of_version_3("auto"))
    assert tile.config == config
    np.testing.assert_array_equal(tile.weights, _weights())
    with pytest.raises(pl.StateError, match="another 'config'"):
        pl.Tile(ROWS, COLS, pl.SingleConfig(device=DEVICE), seed=3).load_state(tile.state())


@pytest.mark.parametrize("bits", ["auto", 32])
def test_a_layer_of_an_earlier_version_loads(bits: int | str) -> None:
    torch = pytest.importorskip("torch")
    config = pl.SingleConfig(device=DEVICE, forward=pl.IOParameters(weight_bits=bits))
    earlier = pl.nn.AnalogLinear(5, 4, config=pl.SingleConfig(device=DEVICE), seed=3)
    saved = earlier.state_dict()
    start = "tiles.0_0."
    arrays = {
        name.removeprefix(start): tensor.numpy()
        for name, tensor in saved.items()
        if name.startswith(start)
    }
    state = pl.state.from_tensors(arrays)
    state.values["version"] = 3
    for name, array in pl.state.to_tensors(state.signed()).items():
        saved[start + name] = torch.from_numpy(array)
    layer = pl.nn.AnalogLinear(5, 4, config=config, seed=7)
    layer.load_state_dict(saved)
    (tile,) = layer.tiles
    assert tile.config == config
    np.testing.assert_array_equal(tile.weights, next(iter(earlier.tiles)).weights)
    assert tile.state().values["version"] == 5


@pytest.mark.parametrize("name", ["reference", "vector", "transfer", "lrtt", "one_sided"])
def test_compounds_read_in_integers_what_they_read_in_floating_point(name: str) -> None:
    configs = {
        "reference": pl.ReferenceConfig,
        "vector": pl.VectorConfig,
        "transfer": pl.TransferConfig,
        "lrtt": pl.LRTTConfig,
        "one_sided": pl.OneSidedConfig,
    }
    x = np.random.default_rng(0).normal(size=(SAMPLES, COLS)).astype(F32)
    results = []
    for bits in (24, 32):
        io = pl.IOParameters(weight_bits=bits, out_noise=0.0, out_res=0.0)
        tile = pl.Tile(ROWS, COLS, configs[name](forward=io, backward=io), seed=4)
        tile.weights = np.random.default_rng(1).uniform(-0.3, 0.3, (ROWS, COLS)).astype(F32)
        results.append(np.asarray(tile.forward(x)))
    assert np.abs(results[0] - results[1]).max() < 1e-5
    assert not np.array_equal(results[0], results[1])
