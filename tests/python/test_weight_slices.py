"""Weights in slices: digits, programming, converters apart and shared, files, states, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from reference_inference import pcm

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ProgrammedTile = Any
"""A tile that has a `programming`."""
D, X = 6, 11
SEED, TILE = 5, 3
EXACT = pl.noise_models.PowerLaw(nu_mean=[0.0], g=[0.0], sigma=[0.0], nu_std=[0.0],
                                 read_noise=[0.0], g_max=32.0)  # fmt: skip
"""A memory without errors, whose range is a power of two: conductances are exact shares of it."""
PERFECT = pl.IOParameters(is_perfect=True)
QUIET = pl.IOParameters(
    inp_res=0, out_res=0, out_noise=0, inp_bound=0, out_bound=0,
    noise_management="none", bound_management="none",
)  # fmt: skip
W = (0.3 * np.sin(1.7 * np.arange(D * X))).reshape(D, X).astype(np.float32)
SCALE = np.abs(W).max(axis=1, keepdims=True)
INPUTS = np.cos(0.9 * np.arange(4 * X)).reshape(4, X).astype(np.float32)


def sliced(**settings: Any) -> pl.InferenceConfig:
    """A configuration of slices."""
    return pl.InferenceConfig(**{"cell": "slices"} | settings)


def tile_of(config: pl.InferenceConfig, weights: NDArray[np.float32] = W) -> ProgrammedTile:
    """A tile with these weights."""
    tile = pl.Tile(*weights.shape, config, seed=SEED, tile_id=TILE)
    tile.weights = weights
    return tile


def programmed(config: pl.InferenceConfig, time: float = 0.0, number: int = 0) -> ProgrammedTile:
    """A programmed tile."""
    tile = tile_of(config)
    tile.programming.program(number)
    tile.programming.drift(time)
    return tile


def digits(weight_bits: int = 8, slice_bits: int = 2) -> NDArray[np.float64]:
    """Signed digits of W [slices, D, X], the least significant first."""
    most = 2 ** (weight_bits - 1) - 1
    whole = np.rint(np.abs(W / SCALE) * np.float32(most)).astype(int)
    shifts = np.arange(0, weight_bits - 1, slice_bits)[:, None, None]
    return (whole >> shifts) % 2**slice_bits * np.sign(W)


def factors(count: int, weight_bits: int = 8, slice_bits: int = 2) -> NDArray[np.float64]:
    """The weight of a slice that holds 1."""
    most = 2 ** (weight_bits - 1) - 1
    return (2.0**slice_bits) ** np.arange(count) * (2**slice_bits - 1) / most


@pytest.mark.parametrize("bits", [(8, 2), (8, 1), (8, 4), (6, 3), (16, 8), (16, 1), (9, 3)])
@pytest.mark.parametrize("converters", ["shared", "apart"])
def test_property_71_slices_of_exact_cells_are_the_quantised_product(
    bits: tuple[int, int], converters: str
) -> None:
    weight_bits, slice_bits = bits
    tile = programmed(
        sliced(
            weight_bits=weight_bits, slice_bits=slice_bits, noise_model=EXACT,
            slice_converters=converters, forward=PERFECT,
        )
    )  # fmt: skip
    most = np.float32(2 ** (weight_bits - 1) - 1)
    quantised = np.rint(W / SCALE * most) / most * SCALE
    assert np.array_equal(tile.weights, quantised)
    parts = digits(weight_bits, slice_bits)
    found = tile.programming.conductances("target").reshape(D, X, len(parts), 2)
    wanted = np.stack([np.maximum(parts, 0), np.maximum(-parts, 0)], axis=-1)
    wanted *= 32.0 / (2**slice_bits - 1)
    np.testing.assert_allclose(found.transpose(2, 0, 1, 3), wanted, rtol=1e-6)
    y = tile.forward(INPUTS)
    np.testing.assert_allclose(y, INPUTS @ quantised.T, atol=1e-6)
    np.testing.assert_allclose(tile.backward(y), y @ quantised, atol=1e-6)


@pytest.mark.parametrize("point", [(0, 0.0, 0), (7, 3600.0, 0), (2**40, 0.5, 9)])
def test_property_61_each_slice_is_an_array_with_draws_of_its_own(
    point: tuple[int, float, int],
) -> None:
    tile = tile_of(sliced(stuck_low=0.05, stuck_high=0.02))
    tile.programming.program(point[0])
    tile.programming.drift(point[1], redraw=point[2])
    parts = digits() / 3.0
    target = 25.0 * np.stack([np.maximum(parts, 0), np.maximum(-parts, 0)], axis=-1)
    weight = 0.0
    pairs = tile.programming.conductances().reshape(D, X, len(parts), 2)
    for k, factor in enumerate(factors(len(parts))):
        stream = k if k < 3 else 64 + 16 * k
        wanted = pcm(target[k].ravel(), SEED, TILE, point, stream=stream)
        low, high = wanted["stuck"] < np.float32(0.05), wanted["stuck"] >= np.float32(1 - 0.02)
        for which in ("programmed", "now"):
            expected = np.where(low, 0.0, np.where(high, 25.0, wanted[which]))
            found = tile.programming.conductances(which).reshape(D, X, len(parts), 2)[:, :, k]
            assert np.abs(found.ravel() - expected).max() < 2e-4
        weight = weight + factor * (pairs[:, :, k, 0] - pairs[:, :, k, 1]) / 25.0
    alpha = np.array(tile.programming.compensation)[:, None]
    assert np.abs(tile.weights - alpha * SCALE * weight).max() < 1e-6


def seen_by_slices(tile: ProgrammedTile) -> NDArray[np.float64]:
    """The weights of the slices of a tile now, [slices, D, X]."""
    g = tile.programming.conductances().reshape(D, X, -1, 2).astype(np.float64)
    return ((g[..., 0] - g[..., 1]) / 25.0).transpose(2, 0, 1)


@pytest.mark.parametrize("compensation", ["none", "per_output"])
def test_slices_apart_are_converted_one_by_one(compensation: str) -> None:
    step, bound = 1 / 16, 0.5
    config = sliced(
        compensation=compensation,
        forward=QUIET.replace(out_res=step / (2 * bound), out_bound=bound),
    )
    tile = programmed(config, time=1e5)
    parts = seen_by_slices(tile)
    alpha = np.array(tile.programming.compensation)
    reads = np.clip(np.rint(INPUTS @ parts.transpose(0, 2, 1) / step) * step, -bound, bound)
    assert (np.abs(reads) == bound).any()
    wanted = np.tensordot(factors(len(parts)), reads, 1) * SCALE.ravel() * alpha
    np.testing.assert_allclose(tile.forward(INPUTS), wanted, atol=1e-5)
    if compensation == "none":
        return
    start = programmed(config)
    one_hot = [
        np.abs(
            np.tensordot(
                factors(len(parts)),
                np.clip(np.rint(seen_by_slices(t) / step) * step, -bound, bound),
                1,
            )
        ).sum(axis=1)
        for t in (start, tile)
    ]
    np.testing.assert_allclose(alpha, one_hot[0] / one_hot[1], rtol=1e-5)


def test_slices_together_have_one_converter() -> None:
    step, bound = 1 / 16, 0.5
    config = sliced(
        slice_converters="shared", compensation="none",
        forward=QUIET.replace(out_res=step / (2 * bound), out_bound=bound),
    )  # fmt: skip
    tile = programmed(config, time=1e5)
    whole = np.tensordot(factors(4), seen_by_slices(tile), 1)
    reads = np.clip(np.rint(INPUTS @ whole.T / step) * step, -bound, bound)
    assert (np.abs(reads) == bound).any()
    np.testing.assert_allclose(tile.forward(INPUTS), reads * SCALE.ravel(), atol=1e-5)


def test_noise_of_converters_adds_up_over_slices() -> None:
    # 4000 reads of 6 outputs: deviations are known to 5 sigma = 5 / sqrt(2 * 24000) = 2.3 %.
    found = {}
    for converters in ("shared", "apart"):
        config = sliced(
            slice_converters=converters, noise_model=EXACT, forward=QUIET.replace(out_noise=0.1)
        )
        y = programmed(config).forward(np.zeros((4000, X), np.float32)) / SCALE.ravel()
        found[converters] = float(y.std())
    assert found["shared"] == pytest.approx(0.1, rel=0.023)
    assert found["apart"] == pytest.approx(0.1 * np.sqrt((factors(4) ** 2).sum()), rel=0.023)


@pytest.mark.parametrize("converters", ["shared", "apart"])
def test_fresh_read_noise_has_the_variance_of_all_slices(converters: str) -> None:
    # 6000 reads of 6 outputs; 5 sigma of a ratio of deviations, 5 / sqrt(2 * 36000) each: 2.7 %.
    config = sliced(
        slice_converters=converters, compensation="none", forward=QUIET, read_window=1e-3
    )
    tile = programmed(config, time=3600.0)
    x = np.tile(INPUTS[:1], (6000, 1))
    spread = (tile.forward(x) / SCALE.ravel()).std(axis=0)
    fast = np.sqrt(np.log(1e-3 / (2 * 250e-9)))
    g = tile.programming.conductances("programmed").reshape(D, X, 4, 2).astype(np.float64)
    quiet = config.noise_model.replace(read_noise_scale=0.0)
    still = programmed(config.replace(noise_model=quiet, read_window=0.0), time=3600.0)
    drifted = still.programming.conductances().reshape(D, X, 4, 2).astype(np.float64)
    q = np.minimum(0.0088 / np.maximum((g / 25.0) ** 0.65, 0.001), 0.2)
    sigma = drifted * q * fast / 25.0 * factors(4)[:, None]
    wanted = np.sqrt((sigma**2).sum(axis=(2, 3)) @ INPUTS[0] ** 2)
    assert np.sqrt((spread**2).sum()) == pytest.approx(np.sqrt((wanted**2).sum()), rel=0.027)


@pytest.mark.parametrize("converters", ["shared", "apart"])
def test_measured_conductances_states_and_files_go_on(converters: str, tmp_path: Path) -> None:
    config = sliced(slice_converters=converters)
    tile = programmed(config, time=60.0, number=3)
    values = tile.programming.conductances("programmed")
    other = tile_of(config)
    other.programming.program_measured(values, 3)
    other.programming.drift(60.0)
    assert np.array_equal(other.weights, tile.weights)
    assert np.array_equal(other.forward(INPUTS), tile.forward(INPUTS))
    loaded = pl.Tile.from_state(other.state())
    assert np.array_equal(loaded.forward(INPUTS), other.forward(INPUTS))
    assert np.array_equal(loaded.programming.conductances(), other.programming.conductances())

    torch.manual_seed(0)
    model = pl.convert_to_analog(torch.nn.Linear(X, D), config, max_input_size=6, seed=1).eval()
    pl.program(model, 2)
    pl.inference.save_conductances(model, tmp_path, which="programmed")
    y = model(torch.from_numpy(INPUTS))
    pl.inference.load_conductances(pl.inference.unprogram(model), tmp_path, number=2)
    assert torch.equal(model(torch.from_numpy(INPUTS)), y)
    finer = pl.convert_to_analog(
        torch.nn.Linear(X, D), config.replace(slice_bits=4), max_input_size=6, seed=1
    ).eval()
    with pytest.raises(ValueError, match="slice_bits = 2, and of the model 4"):
        pl.inference.load_conductances(finer, tmp_path)


def test_an_average_of_inputs_is_kept_for_each_slice() -> None:
    config = sliced(forward=pl.IOParameters(noise_management="average_abs_max"))
    tile = programmed(config)
    tile.forward(INPUTS)
    loaded = pl.Tile.from_state(tile.state())
    assert np.array_equal(loaded.forward(INPUTS[:2]), tile.forward(INPUTS[:2]))


@pytest.mark.parametrize("converters", ["shared", "apart"])
def test_property_65_points_of_slices_are_read_in_one_pass(converters: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(X, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    config = sliced(slice_converters=converters, read_window=1e-3)
    model = pl.convert_to_analog(net, config, max_input_size=6, seed=3).eval()
    x = torch.from_numpy(INPUTS)
    batches = [(x, torch.tensor([0, 1, 2, 0]))]
    report = pl.inference.evaluate(
        model, batches, times=[1.0, 1e6], programmings=3, metric=lambda y, _: y[:, 0].double()
    )
    for column in range(3):
        pl.program(model, column)
        for row, time in enumerate((1.0, 1e6)):
            pl.drift(model, time)
            with torch.no_grad():
                wanted = float(model(x)[:, 0].double().mean())
            assert report.values[row, column] == pytest.approx(wanted, abs=1e-6)


def test_converters_are_counted() -> None:
    counts = {}
    for converters in ("shared", "apart"):
        tile = programmed(sliced(slice_converters=converters, forward=QUIET))
        tile.forward(INPUTS)
        entry = tile.hardware_counts()
        assert entry["arrays"][0]["columns"] == 8 * X
        counts[converters] = entry["reads"][0]
    shared, apart = counts["shared"], counts["apart"]
    assert (shared["samples"], apart["samples"]) == (4, 4)
    assert (shared["adc"], apart["adc"]) == (4 * D, 4 * 4 * D)
    assert (shared["dac"], apart["dac"]) == (4 * X, 4 * 4 * X)
    assert shared["cell_reads"] == apart["cell_reads"] == 4 * D * X * 8


@pytest.mark.parametrize("converters", ["shared", "apart"])
def test_property_63_training_reads_see_programmed_slices(converters: str) -> None:
    config = sliced(
        slice_converters=converters, modifier="noise_model", forward=PERFECT, drop_connect=0.2
    )
    tile = tile_of(config)
    x = np.eye(X, dtype=np.float32)
    seen = tile.forward(x).T
    assert np.abs(tile.backward(np.eye(D, dtype=np.float32)) - seen).max() < 1e-6
    dropped = np.abs(seen) < 1e-12
    assert 0.02 < dropped.mean() < 0.5
    assert 0.01 < np.abs(seen - W)[~dropped].max() < 0.3
    again = tile.forward(x).T
    assert not np.array_equal(seen, again)
    assert np.array_equal(tile.forward(x, evaluation=True).T, W / SCALE * SCALE)


def test_a_backward_read_through_converters_reads_slices() -> None:
    config = sliced(noise_model=EXACT, forward=PERFECT, backward=QUIET.replace(out_noise=0.1))
    d = np.zeros((4000, D), np.float32)
    spread = float(programmed(config).backward(d).std())
    # 4000 reads of 11 lines: 5 sigma are 1.7 %.
    assert spread == pytest.approx(0.1 * np.sqrt((factors(4) ** 2).sum()), rel=0.017)


def test_ranges_of_converters_hold_the_sums_of_all_slices() -> None:
    torch.manual_seed(0)
    x = torch.from_numpy(INPUTS)
    found = {}
    for converters in ("shared", "apart"):
        config = sliced(slice_converters=converters, forward=QUIET)
        model = pl.convert_to_analog(torch.nn.Linear(X, D, bias=False), config, seed=1).eval()
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(W))
        found[converters] = pl.inference.calibrate_outputs(model, [x], quantile=1.0)[""]
    sums = np.abs(INPUTS @ (digits() / 3.0).transpose(0, 2, 1)).max()
    assert sums <= found["apart"] <= sums * (1 + 2**-9)
    whole = np.abs(INPUTS @ (W / SCALE).T).max()
    assert whole <= found["shared"] <= whole * (1 + 2**-9)


def test_explain_tells_digits_from_other_errors() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, X)
    config = sliced(weight_bits=4, forward=QUIET.replace(out_res=0.02, out_bound=4.0))
    model = pl.convert_to_analog(torch.nn.Linear(X, D), config, seed=1).eval()
    coarse = pl.inference.explain(model, x, time=3600.0).of_layer("")
    assert coarse["digits of weights"] == pytest.approx(0.08, abs=0.05)
    assert {"programming", "drift", "read noise", "output converter"} <= coarse.keys()
    fine = pl.convert_to_analog(
        torch.nn.Linear(X, D), config.replace(weight_bits=16, slice_bits=4), seed=1
    ).eval()
    assert pl.inference.explain(fine, x).of_layer("").get("digits of weights", 0.0) < 1e-4


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"cell": "slices", "slice_bits": 3}, "slice_bits is 3, which does not divide"),
    ({"cell": "slices", "slice_bits": 8}, "one slice holds all of the 8 bits"),
    ({"cell": "slices", "weight_bits": 2, "slice_bits": 1}, "one slice holds all of the 2 bits"),
    ({"cell": "slices", "cell_bits": 4}, "cell_bits is 4, and the levels of"),
    ({"cell": "slices", "weight_bits": 17}, "weight_bits is 17"),
    ({"cell": "slices", "slice_bits": 0}, "slice_bits is 0"),
    ({"cell": "slices", "cell_reference": "column"}, "choose cell='single'"),
    ({"cell": "slices", "significance": [1, 2]}, "choose cell='pairs'"),
    ({"weight_bits": 6}, "weight_bits is set, and InferenceConfig.cell has no slices"),
    ({"slice_bits": 4}, "slice_bits is set"),
    ({"slice_converters": "shared"}, "slice_converters is set"),
    ({"cell": "slices", "slice_converters": "both"}, "slice_converters"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSALS)
def test_bad_slices_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        pl.InferenceConfig(**settings)
    assert message in str(refusal.value)
