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


LINEAR: dict[str, dict[str, Any]] = {
    "LinearStep": {"gamma_up": 0.3, "gamma_down": 0.5, "gamma_up_dtod": 0.1},
    "SoftBounds": {},
    "SoftBoundsReference": {
        "reference_mean": 0.02,
        "reference_std": 0.05,
        "slope_up_dtod": 0.1,
        "subtract_symmetry_point": True,
    },
}
"""Models whose step is linear in the weight, with settings under which every term counts."""


def make_tile(
    noise_merge: str = "batch",
    pulse_type: str = "stochastic_compressed",
    model: str = "ConstantStep",
    **settings: Any,
) -> pl.Tile:
    device = getattr(pl.devices, model)(**DEVICE, **settings, noise_merge=noise_merge)
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


def moments_of(
    model: str,
    n: NDArray[np.int64],
    w: NDArray[np.float64],
    params: Any,  # noqa: ANN401
    cells: Any,  # noqa: ANN401
) -> tuple[NDArray[np.float64], ...]:
    """Mean and variance of weights after signed counts, pulse by pulse, and which of them merge.

    The last result is whether cells clearly keep to the limits of merged noise: the square of the
    skewness, 12 sigma^2 times the sum of k^2 / (1 + k)^2 over the pulses, is below 0.05^2, the
    pulses of a sample let the weight decay by at most e^0.25, k by 0.25, and five standard
    deviations lie within the bounds on the way.

    The step of a pulse is t(w) = t(0) + k w, so that a pulse takes the mean m to m + t(m) and the
    variance v to (1 + k)^2 v + sigma^2 E[noise^2], of which noise is t(w), or additively t at the
    weight of a step without slope.
    """
    sigma = params["dw_min_std"]
    zero, c = np.zeros_like(w), oracle.common(params, cells)
    steps = []
    for up in (True, False):
        at_zero, at_one = (
            oracle.mean_steps(model, at, params, cells)[0 if up else 1] * (1 if up else -1)
            for at in (zero, zero + 1)
        )
        steps.append((at_zero, at_one - at_zero, c.up if up else -c.down))
    mean, variance, widest, low, high = w.copy(), zero.copy(), zero.copy(), w.copy(), w.copy()
    for counts_of_sample in n:
        for pulse in range(int(abs(counts_of_sample).max(initial=0))):
            fires = abs(counts_of_sample) > pulse
            up = counts_of_sample > 0
            at_zero, slope, plain = (
                np.where(up, a, b) for a, b in zip(steps[0], steps[1], strict=True)
            )
            step = at_zero + slope * mean
            squares = plain**2
            if params["mult_noise"]:
                squares = step**2 + slope**2 * variance
            variance = np.where(fires, (1 + slope) ** 2 * variance + sigma**2 * squares, variance)
            mean, widest = np.where(fires, mean + step, mean), np.maximum(widest, variance)
            low, high = np.minimum(low, mean), np.maximum(high, mean)
    pulses = np.maximum(n, 0).sum(axis=0), np.maximum(-n, 0).sum(axis=0)
    steepness = sum(m * (k / (1 + k)) ** 2 for m, (_, k, _) in zip(pulses, steps, strict=True))
    decay = np.max([abs(np.log1p(k)) for _, k, _ in steps], axis=0)
    merge = ((abs(n).max(axis=0) - 1) * decay < 0.249) & (decay < 0.22)
    if params["mult_noise"]:
        merge &= 12 * sigma**2 * steepness < 0.8 * 0.05**2
    lowest, highest = oracle.bounds(model, params, cells)
    margin = 5.1 * np.sqrt(widest) + 1e-5
    return mean, variance, merge & (high + margin < highest) & (low - margin > lowest)


@pytest.mark.parametrize("multiplicative", [True, False])
@pytest.mark.parametrize("model", LINEAR)
@pytest.mark.parametrize("pulse_type", ["stochastic_compressed", "mean_count"])
def test_property_44_moments_in_the_order_of_samples_are_those_of_the_oracle(
    model: str, pulse_type: str, *, multiplicative: bool
) -> None:
    settings = LINEAR[model] | {"mult_noise": multiplicative}
    tile = make_tile(pulse_type=pulse_type, model=model, **settings)
    params = tile.config.to_dict()["device"]
    names = _core.schema()["devices"][model]["cell"]
    planes = next(v for k, v in tile.state().tensors.items() if k.endswith("cells"))
    cells = {name: plane.astype(float) for name, plane in zip(names, planes, strict=True)}
    lowest, highest = oracle.bounds(model, params, cells)
    tile.weights = (0.5 * (lowest + highest) + 0.2 * tile.weights).astype(np.float32)
    nominal = {name: np.ones(1) * (not name.startswith(("gamma", "ref"))) for name in names}
    granularity = float(np.mean(oracle.mean_steps(model, np.zeros(1), params, nominal)))
    first, compared = 0, 0
    for samples in (5, 13):
        x, d = make_batch(samples)
        n = counts(
            Update(pulse_type=pulse_type),
            x.astype(float),
            d.astype(float),
            float(np.float32(LR)),
            granularity,
            make_key(SEED, 0, VISIBLE_UPDATE),
            first,
        )
        before = tile.weights.astype(float)
        mean, variance, merge = moments_of(model, n, before, params, cells)
        tile.update(x, d, LR)
        expected = mean + np.sqrt(variance) * normals_of_update(first)
        # Other cells take their samples one by one, with other draws.
        merged = merge & (n > 0).any(axis=0) & (n < 0).any(axis=0)
        # A level of d at a border of rounding has another neighbour in single precision.
        close = abs(tile.weights - expected) < 3e-6
        assert np.count_nonzero(close[merged]) > 0.97 * np.count_nonzero(merged)
        assert np.all((tile.weights >= lowest - 1e-6) & (tile.weights <= highest + 1e-6))
        compared += int(np.count_nonzero(merged))
        first += samples
    assert compared > 80


@pytest.mark.parametrize("model", LINEAR)
def test_property_37_merged_linear_steps_whatever_the_threads(model: str) -> None:
    x, d = make_batch(16)
    tiles = [make_tile(model=model, **LINEAR[model]) for _ in range(2)]
    tiles[1].threads = 2
    for tile in tiles:
        tile.update(x, d, LR)
    assert same_bits([tiles[0].weights], [tiles[1].weights])
    other = make_tile("none", model=model, **LINEAR[model])
    other.update(x, d, LR)
    assert other.statistics()["pulses"] == tiles[0].statistics()["pulses"] > 0
    assert not same_bits([tiles[0].weights], [other.weights])


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


@pytest.mark.parametrize(
    "model", [m for m in pl.devices.MODELS if m != "ConstantStep" and m not in LINEAR]
)
def test_other_models_refuse_it(model: str) -> None:
    with pytest.raises(
        pl.ConfigError, match=rf"{model}.noise_merge is 'batch'.*noise_merge='none'"
    ):
        getattr(pl.devices, model)(noise_merge="batch")


@pytest.mark.parametrize("model", ["ConstantStep", *LINEAR])
def test_a_draw_per_pulse_and_one_per_update_exclude_each_other(model: str) -> None:
    with pytest.raises(
        pl.ConfigError, match=r"noise_merge is 'batch'.*pulse_noise is 'sequential'"
    ):
        getattr(pl.devices, model)(noise_merge="batch", pulse_noise="sequential")
