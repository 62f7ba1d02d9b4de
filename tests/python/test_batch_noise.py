"""noise_merge="batch" against a numpy oracle, and what a user sees of it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
import reference_devices as oracle
from conftest import PLAIN_LRTT, same_bits
from pulsora import _core
from reference_pulses import Update, counts
from reference_random import Purpose, draw, make_key, normal_pair16

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# Weights are written beyond the bounds, so that some cells are at their bounds.
pytestmark = pytest.mark.filterwarnings("ignore:.*outside the bounds of their cells")

SEED, LR = 11, 0.05
SHAPE = (6, 21)  # eight neighbouring cells may lie in two rows
VISIBLE, VISIBLE_UPDATE = 0, 8  # ArrayIds
DEVICE: dict[str, Any] = {"dw_min": 0.002, "up_down": 0.1, "up_down_dtod": 0.05}


def make_tile(noise_merge: str = "batch", pulse_type: str = "stochastic_compressed") -> pl.Tile:
    device = pl.devices.ConstantStep(**DEVICE, noise_merge=noise_merge)
    update = pl.UpdateParameters(pulse_type=pulse_type)
    tile = pl.Tile(*SHAPE, pl.SingleConfig(device=device, update=update), seed=SEED)
    tile.weights = np.linspace(-0.5, 0.5, tile.weights.size, dtype=np.float32).reshape(SHAPE)
    return tile


def make_batch(samples: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(samples)
    x = rng.normal(size=(samples, SHAPE[1])).astype(np.float32)
    d = (0.2 * rng.normal(size=(samples, SHAPE[0]))).astype(np.float32)
    return x, d


def normals_of_update(first_sample: int) -> NDArray[np.float64]:
    """One normal per cell; eight neighbouring cells share a block of random words."""
    cells = np.arange(SHAPE[0] * SHAPE[1])
    key = make_key(SEED, 0, VISIBLE)
    words = draw(key, Purpose.CYCLE_NOISE_BATCH, cells // 8, first_sample)
    normals = normal_pair16(words).reshape(len(cells), 8)
    return np.asarray(normals[np.arange(len(cells)), cells % 8].reshape(SHAPE), dtype=np.float64)


@pytest.mark.parametrize(
    "pulse_type", ["stochastic_compressed", "stochastic", "mean_count", "deterministic_implicit"]
)
def test_property_44_an_update_is_that_of_the_oracle(pulse_type: str) -> None:
    tile = make_tile(pulse_type=pulse_type)
    params = pl.devices.ConstantStep(**DEVICE).to_dict()
    names = _core.schema()["devices"]["ConstantStep"]["cell"]
    planes = next(v for k, v in tile.state().tensors.items() if k.endswith("cells"))
    cells = {name: plane.astype(float) for name, plane in zip(names, planes, strict=True)}
    c = oracle.common(params, cells)
    first, compared = 0, 0
    for samples in (5, 13):
        x, d = make_batch(samples)
        n = counts(
            Update(pulse_type=pulse_type),
            x.astype(float),
            d.astype(float),
            float(np.float32(LR)),
            0.5 * params["dw_min"] * (2.0 - params["up_down"]),  # of both directions
            make_key(SEED, 0, VISIBLE_UPDATE),
            first,
        )
        up, down = np.maximum(n, 0).sum(axis=0), np.maximum(-n, 0).sum(axis=0)
        before = tile.weights.astype(float)
        sd = params["dw_min_std"] * np.sqrt(c.up**2 * up + c.down**2 * down)
        mean = before + c.up * up - c.down * down
        clear = (before + c.up * up + 5 * sd < c.w_max - 1e-5) & (
            before - c.down * down - 5 * sd > c.w_min + 1e-5
        )
        tile.update(x, d, LR)
        expected = mean + sd * normals_of_update(first)
        np.testing.assert_allclose(tile.weights[clear], expected[clear], atol=2e-6)
        compared += int(np.count_nonzero(clear & (up > 0) & (down > 0)))
        first += samples
    assert compared > 80


def test_cutting_a_batch_gives_other_draws_of_the_same_pulses() -> None:
    x, d = make_batch(16)
    whole, cut = make_tile(), make_tile()
    whole.update(x, d, LR)
    for begin, end in pairwise([0, 3, 16]):
        cut.update(x[begin:end], d[begin:end], LR, end_of_batch=False)
    cut.end_batch(LR)
    assert whole.statistics()["pulses"] == cut.statistics()["pulses"] > 0
    assert not same_bits([whole.weights], [cut.weights])


def test_property_37_same_calls_same_bits_whatever_the_threads() -> None:
    x, d = make_batch(16)
    tiles = [make_tile(), make_tile()]
    tiles[1].threads = 2
    for tile in tiles:
        tile.update(x, d, LR)
    assert same_bits([tiles[0].weights], [tiles[1].weights])


def test_property_37_an_adapter_with_it_too() -> None:
    device = pl.devices.Idealized(noise_merge="batch")
    cells = {"visible": device, "fast": device, "transfer_every": 7}
    config = pl.LRTTConfig(rank=3, **(PLAIN_LRTT | cells))
    tiles = [pl.Tile(*SHAPE, config, seed=SEED, threads=threads) for threads in (1, 2)]
    for tile in tiles:
        for samples in (5, 16, 9):
            tile.update(*make_batch(samples), LR)
    assert tiles[0].statistics()["transfers"] > 0
    assert same_bits([tiles[0].weights], [tiles[1].weights])


def test_property_38_a_saved_tile_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    x, d = make_batch(16)
    tile = make_tile()
    tile.update(x, d, LR)
    tile.save(tmp_path / "tile.safetensors")
    loaded = pl.Tile.load(tmp_path / "tile.safetensors")
    assert loaded.config.to_dict()["device"]["noise_merge"] == "batch"
    for each in (tile, loaded):
        each.update(x, d, -LR)
    assert same_bits([tile.weights], [loaded.weights])


@pytest.mark.parametrize("model", [m for m in pl.devices.MODELS if m != "ConstantStep"])
def test_other_models_refuse_it(model: str) -> None:
    with pytest.raises(
        pl.ConfigError, match=rf"{model}.noise_merge is 'batch'.*noise_merge='none'"
    ):
        getattr(pl.devices, model)(noise_merge="batch")


def test_a_draw_per_pulse_and_one_per_update_exclude_each_other() -> None:
    with pytest.raises(
        pl.ConfigError, match=r"noise_merge is 'batch'.*pulse_noise is 'sequential'"
    ):
        pl.devices.ConstantStep(noise_merge="batch", pulse_noise="sequential")
