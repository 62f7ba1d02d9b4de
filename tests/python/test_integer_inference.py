"""Reads of programmed arrays, whose products are sums of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import same_bits

ROWS, OUT, IN = 12, 9, 40
W = np.random.default_rng(1).normal(size=(OUT, IN)).astype(np.float32) / 10
X = np.random.default_rng(2).uniform(-1, 1, (ROWS, IN)).astype(np.float32)
BOUND_EXPONENT = 3  # weights in integers reach eight times the range of cells
EXACT: dict[str, Any] = {
    "out_res": 0.0, "out_noise": 0.0, "out_bound": 0.0, "bound_management": "none"
}  # fmt: skip
CELLS: list[dict[str, Any]] = [
    {},
    {"cell": "pairs"},
    {"cell": "slices", "weight_bits": 6, "slice_bits": 2},
    {"read_window": 1.0},
]


def tile_of(
    bits: int | str, device: str = "cpu", threads: int = 1, io: dict[str, Any] | None = None,
    **settings: Any,
) -> pl.Tile:  # fmt: skip
    config = pl.InferenceConfig(
        noise_model=pl.noise_models.PCMLike(),
        forward=pl.IOParameters(weight_bits=bits, **(io or {})),
        **settings,
    )
    tile = pl.Tile(OUT, IN, config, seed=3, device=device, threads=threads)
    tile.weights = W
    assert tile.programming is not None
    tile.programming.program(5)
    tile.programming.drift(3600.0)
    return tile


def read(tile: pl.Tile, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A read of rows in numpy, wherever the tile is."""
    if tile.device == "cpu":
        return np.asarray(tile.forward(x))
    torch = pytest.importorskip("torch")
    y = tile.forward(torch.from_numpy(x).to(tile.device))
    return np.asarray(torch.from_dlpack(y).cpu().numpy())


@pytest.mark.parametrize("bits", [24, 16])
def test_the_error_is_that_of_rounded_weights(bits: int) -> None:
    # |y - y'| <= unit of W x 2^(e - F - 1) x sum |n|, and the rounding of sums.
    exact, made = (read(tile_of(b, io=EXACT, scaling_per="tile"), X) for b in (32, bits))
    largest = float(np.abs(W).max())
    sums = np.abs(X).sum(axis=1, keepdims=True) + IN / 126  # inputs are rounded to 1 / 126
    rounding = 2.0 ** (BOUND_EXPONENT - bits)  # 2^(e - F - 1) with F = bits - 1
    allowed = 1.5 * largest * sums * (rounding + IN * 2.0**-24)
    assert (np.abs(exact - made) <= allowed).all()
    assert bits == 24 or np.abs(exact - made).max() > 0.0


@pytest.mark.parametrize("settings", CELLS, ids=lambda each: "-".join(map(str, each.values())))
def test_cuts_and_threads_change_no_bit(settings: dict[str, Any]) -> None:
    whole = read(tile_of("auto", **settings), X)
    assert same_bits(whole, read(tile_of(24, **settings), X))
    many = tile_of("auto", threads=2, **settings)
    parts = np.concatenate([read(many, X[:1]), read(many, X[1:8]), read(many, X[8:])])
    assert same_bits(whole, parts)
    told = tile_of("auto", **settings).explain(X, np.ones((ROWS, OUT), np.float32), 0.1)
    assert "integers of 24 bits: forward" in told["products"]


@pytest.mark.parametrize("settings", CELLS, ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize("bits", ["auto", 16])
def test_property_36_reads_have_the_bits_of_a_cpu(
    settings: dict[str, Any], bits: int | str, device: str
) -> None:
    assert same_bits(read(tile_of(bits, **settings), X), read(tile_of(bits, device, **settings), X))


def test_weights_far_beyond_the_range_saturate() -> None:
    # Errors of 400 times the usual size: many weights lie beyond eight times the range.
    memory = pl.noise_models.PCMLike(prog_noise_scale=400.0, drift_scale=0.0, read_noise_scale=0.0)
    seen = {}
    for bits in (32, 24):
        config = pl.InferenceConfig(
            noise_model=memory, scaling_per="tile", compensation="none",
            forward=pl.IOParameters(weight_bits=bits, inp_res=1 / 126, **EXACT),
        )  # fmt: skip
        tile = pl.Tile(OUT, IN, config, seed=3)
        tile.weights = W
        assert tile.programming is not None
        tile.programming.program(5)
        largest = float(np.abs(W).max())
        within = np.clip(tile.weights, -8 * largest, 8 * largest)
        seen[bits] = np.stack([read(tile, np.eye(IN, dtype=np.float32)[k : k + 1])[0]
                               for k in range(IN)], axis=1)  # fmt: skip
    assert np.abs(seen[32]).max() > 9 * largest
    assert np.allclose(seen[24], within, atol=1e-4 * largest)


def test_an_evaluation_is_the_loop_of_single_realisations() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(IN, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    config = pl.InferenceConfig()
    model = pl.convert_to_analog(plain, config, max_input_size=12, seed=3).eval()
    batches = [(torch.from_numpy(X), torch.arange(ROWS) % 4)]
    settings: dict[str, Any] = {"times": [1.0, 3600.0], "programmings": 3}

    def loss(y: Any, target: Any) -> Any:  # noqa: ANN401 - tensors
        return torch.nn.functional.cross_entropy(y, target, reduction="none")

    alone = pl.inference.evaluate(model, batches, prepare=lambda _: None, metric=loss, **settings)
    folded = pl.inference.evaluate(model, batches, metric=loss, **settings)
    assert same_bits(alone.values, folded.values)


@pytest.mark.parametrize("version", [3, 4])
def test_a_tile_of_an_earlier_version_goes_on_in_floating_point(version: int) -> None:
    state = tile_of("auto").state()
    state.values["version"] = version
    tile = pl.Tile.from_state(state.signed())
    assert tile.config.forward.weight_bits == 32
    assert same_bits(read(tile, X), read(tile_of(32), X))
    same = tile_of("auto")
    same.load_state(state.signed())  # whose settings count: this tile reads in integers
    assert same.config.forward.weight_bits == "auto"
    assert same_bits(read(same, X), read(tile_of(24), X))


@pytest.mark.parametrize("version", [3, 4])
def test_a_layer_of_an_earlier_version_loads(version: int) -> None:
    torch = pytest.importorskip("torch")
    config = pl.InferenceConfig(noise_model=pl.noise_models.PCMLike())
    earlier = pl.nn.AnalogLinear(5, 4, config=config, seed=3)
    saved, start = earlier.state_dict(), "tiles.0_0."
    state = next(iter(earlier.tiles)).state()
    state.values["version"] = version
    for name, array in pl.state.to_tensors(state.signed()).items():
        saved[start + name] = torch.from_numpy(array)
    layer = pl.nn.AnalogLinear(5, 4, config=config, seed=7)
    layer.load_state_dict(saved)
    assert next(iter(layer.tiles)).config == config
    assert torch.equal(layer.weight, earlier.weight)
