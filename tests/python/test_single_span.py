"""Cells of one device whose range reaches from the smallest to the largest weight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from host_reads import HostReads
from reference_inference import pcm

if TYPE_CHECKING:
    from pathlib import Path

Array = Any
Memory = Any
ProgrammedTile = Any
D, X = 7, 13
SEED, TILE = 5, 3
EXACT = {"prog_noise_scale": 0, "read_noise_scale": 0, "drift_scale": 0}
PERFECT = pl.IOParameters(is_perfect=True)


def weights() -> Array:
    """Weights that are not symmetric about 0; those of one output are equal, of another all 0."""
    w = np.random.default_rng(2).uniform(-0.1, 0.4, (D, X)) * np.linspace(0.2, 1.0, D)[:, None]
    w[2] = 0.25
    w[3] = 0.0
    return w.astype(np.float32)


W = weights()


def made(device: str = "cpu", memory: Memory = None, **settings: Any) -> ProgrammedTile:
    """A programmed tile of these cells."""
    given = {"cell": "single", "single_span": "data", "forward": PERFECT, "compensation": "none"}
    if memory is not None:
        given["noise_model"] = memory
    config = pl.InferenceConfig(**(given | settings))
    tile: Any = HostReads(pl.Tile(D, X, config, seed=SEED, tile_id=TILE, device=device))
    tile.weights = W
    tile.programming.program()
    return tile


def span_of(per: str) -> tuple[Array, Array]:
    """The smallest and the largest of the weights that share a scale, [D, 1]."""
    w = W.astype(np.float64)
    if per == "tile":
        return np.full((D, 1), w.min()), np.full((D, 1), w.max())
    return w.min(axis=1, keepdims=True), w.max(axis=1, keepdims=True)


def shares_of(per: str) -> Array:
    """The shares of the range of conductances; 1/2 where all weights are equal."""
    low, high = span_of(per)
    length = high - low
    return np.where(length > 0, (W - low) / np.where(length > 0, length, 1.0), 0.5)


@pytest.mark.parametrize("per", ["output", "tile"])
@pytest.mark.parametrize("reference", ["digital", "column"])
def test_the_smallest_weight_is_at_g_min_and_the_largest_at_g_max(
    device: str, per: str, reference: str
) -> None:
    memory = pl.noise_models.PCMLike(g_min=5.0, g_max=25.0, **EXACT)
    tile = made(device, memory, scaling_per=per, cell_reference=reference)
    found = tile.programming.conductances("target")[..., 0]
    np.testing.assert_allclose(found, 5.0 + 20.0 * shares_of(per), atol=2e-5)
    assert np.abs(tile.weights - W).max() < 1e-6
    low, high = span_of(per)
    used = (high > low).ravel()
    by_row = found[used] if per == "output" else found[used].reshape(1, -1)
    np.testing.assert_allclose(by_row.min(axis=1), 5.0, atol=2e-5)
    np.testing.assert_allclose(by_row.max(axis=1), 25.0, atol=2e-5)
    symmetric = made(device, memory, single_span="symmetric", scaling_per=per)
    assert symmetric.programming.conductances("target").min() > 6.0


@pytest.mark.parametrize("per", ["output", "tile"])
@pytest.mark.parametrize("time", [0.0, 1e5])
def test_errors_of_devices_count_by_half_of_the_span(device: str, per: str, time: float) -> None:
    tile = made(device, scaling_per=per)
    tile.programming.program(4)
    tile.programming.drift(time)
    low, high = span_of(per)
    target = 25.0 * shares_of(per)
    wanted = pcm(target.ravel(), seed=SEED, tile_id=TILE, point=(4, time, 0))["now"]
    g = wanted.reshape(D, X) / 25.0
    assert np.abs(tile.programming.conductances()[..., 0] / 25.0 - g).max() < 1e-5
    np.testing.assert_allclose(tile.weights, low + (high - low) * g, atol=2e-6)
    x = np.random.default_rng(1).standard_normal((4, X)).astype(np.float32)
    np.testing.assert_allclose(tile.forward(x), x @ tile.weights.T, atol=1e-5)
    d = np.random.default_rng(1).standard_normal((4, D)).astype(np.float32)
    np.testing.assert_allclose(tile.backward(d), d @ tile.weights, atol=1e-5)


def test_compensation_reads_weights_with_their_middle() -> None:
    tile = made(compensation="per_output", compensation_read="exact")
    tile.programming.program(1)
    start = np.abs(tile.weights.astype(np.float64)).sum(axis=1)
    tile.programming.drift(1e6)
    factors = np.array(tile.programming.compensation)
    now = np.abs(tile.weights.astype(np.float64)).sum(axis=1) / factors
    used = start > 0
    np.testing.assert_allclose(factors[used], start[used] / now[used], rtol=1e-5)


def test_fresh_read_noise_counts_by_half_of_the_span() -> None:
    quiet = pl.IOParameters(
        inp_res=0, out_res=0, out_noise=0, inp_bound=0, out_bound=0,
        noise_management="none", bound_management="none",
    )  # fmt: skip
    tile = made(forward=quiet, read_window=60.0, scaling_per="output")
    tile.programming.drift(86400.0)
    rows = 20000
    one_hot = np.zeros((rows, X), dtype=np.float32)
    one_hot[:, 0] = 1.0
    found = tile.forward(one_hot).astype(np.float64).std(axis=0)
    memory = pl.noise_models.PCMLike()
    programmed = tile.programming.conductances("programmed")[:, 0, 0].astype(np.float64)
    age = 86400.0 + memory.t_0
    drifted = pcm((25.0 * shares_of("output")).ravel(), SEED, TILE, (0, 86400.0, 0))
    nothing = made(forward=quiet, memory=memory.replace(read_noise_scale=0.0))
    nothing.programming.drift(86400.0)
    g = nothing.programming.conductances()[:, 0, 0].astype(np.float64)
    q = np.minimum(0.0088 / np.maximum((programmed / 25.0) ** 0.65, 0.001), 0.2)
    assert np.isfinite(drifted["now"]).all()
    low, high = span_of("output")
    sigma = g * q * np.sqrt(np.log(60.0 / (2 * memory.t_read))) / 25.0 * (high - low).ravel()
    assert age > 60.0
    used = sigma > 0
    # 20000 numbers tell a deviation to 1 / sqrt(40000): 5 of these.
    np.testing.assert_allclose(found[used], sigma[used], rtol=5 / 200)


def test_states_configurations_and_refusals() -> None:
    tile = made(scaling_quantile=0.9, scaling_per="tile")
    clipped = np.clip(W, -np.float32(tile.programming.scales[0]), tile.programming.scales[0])
    ideal = made(memory=pl.noise_models.PCMLike(**EXACT), scaling_quantile=0.9, scaling_per="tile")
    assert np.abs(ideal.weights - clipped).max() < 1e-6
    other = pl.Tile.from_state(tile.state())
    assert np.array_equal(other.weights, tile.weights)
    tile.programming.drift(60.0)
    first = tile.weights
    tile.programming.drift(1e4)
    tile.programming.drift(60.0)
    assert np.array_equal(tile.weights, first)
    with pytest.raises(pl.ConfigError, match=r"single_span is 'data', and .* more than one device"):
        pl.InferenceConfig(single_span="data")


def test_files_of_another_span_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    models = {}
    for span in ("data", "symmetric"):
        torch.manual_seed(0)
        config = pl.InferenceConfig(cell="single", single_span=span)
        models[span] = pl.program(
            pl.convert_to_analog(torch.nn.Linear(X, D), config, seed=1).eval()
        )
    pl.inference.save_conductances(models["data"], tmp_path)
    with pytest.raises(ValueError, match="single_span = data, and of the model symmetric"):
        pl.inference.load_conductances(models["symmetric"], tmp_path)
    x = torch.randn(3, X)
    same = models["data"](x)
    pl.inference.save_conductances(models["data"], tmp_path, which="programmed")
    pl.inference.load_conductances(models["data"], tmp_path)
    assert torch.allclose(models["data"](x), same, atol=1.0)
    # Files of before have no entry, and are of symmetric cells.
    pl.inference.save_conductances(models["symmetric"], tmp_path)
    places = tmp_path / "conductances.json"
    entries = json.loads(places.read_text())
    for layer in entries["layers"].values():
        assert layer.pop("single_span") == "symmetric"
    places.write_text(json.dumps(entries))
    pl.inference.load_conductances(models["symmetric"], tmp_path)
