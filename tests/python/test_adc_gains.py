"""Gains of ADCs: of outputs and slices, in reads and one-hot reads, calibrated, saved, refused."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from host_reads import HostReads

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from numpy.typing import NDArray

ProgrammedTile = Any
"""A tile that has a `programming`."""
Layer = Any
"""A layer of programmed tiles."""
D, X, ROWS = 6, 11, 40
STEP, BOUND = 1 / 16, 0.75
PERFECT = pl.IOParameters(is_perfect=True)
QUIET = pl.IOParameters(
    inp_res=0, out_res=STEP / (2 * BOUND), out_noise=0, inp_bound=1, out_bound=BOUND,
    noise_management="none", bound_management="none",
)  # fmt: skip
RANDOM = np.random.default_rng(3)
# Outputs whose sums differ by factors of ten.
W = (RANDOM.uniform(-0.3, 0.3, (D, X)) * 0.5 ** np.arange(D)[:, None]).astype(np.float32)
INPUTS = RANDOM.uniform(-0.6, 0.6, (ROWS, X)).astype(np.float32)
GAINS = np.array([1.0, 0.4, 3.0, 0.9, 7.5, 1.1], dtype=np.float32)
EXACT = {"prog_noise_scale": 0, "read_noise_scale": 0, "drift_scale": 0}


def tile_of(device: str = "cpu", **settings: Any) -> ProgrammedTile:
    """A programmed tile of one scale, with cells without errors."""
    memory = pl.noise_models.PCMLike(g_max=32.0, **EXACT)
    given = {"noise_model": memory, "scaling_per": "tile", "forward": QUIET} | settings
    config = pl.InferenceConfig(**given)
    tile: Any = HostReads(pl.Tile(D, X, config, seed=5, tile_id=3, device=device))
    tile.weights = W
    tile.programming.program()
    return tile


def levels(sums: NDArray[np.float64], gains: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sums [..., D] as ADCs with gains convert them."""
    return np.clip(np.rint(sums * gains / STEP) * STEP, -BOUND, BOUND) / gains


def agree(found: NDArray[np.float32], wanted: NDArray[np.float64], sums: NDArray[np.float64],
          gains: NDArray[np.float32]) -> None:  # fmt: skip
    """Compares readings; a sum that lies between two levels to rounding may become either."""
    between = np.abs(sums * gains / STEP % 1 - 0.5) < 1e-4
    assert between.mean() < 0.01
    np.testing.assert_allclose(np.where(between, wanted, found), wanted, atol=2e-6)


SCALE = np.float64(np.abs(W).max())
SUMS = INPUTS.astype(np.float64) @ (W / SCALE).T.astype(np.float64)


@pytest.mark.parametrize("inputs", ["continuous", "levels"])
def test_each_output_has_the_range_of_its_gain(device: str, inputs: str) -> None:
    x = INPUTS if inputs == "continuous" else (np.rint(INPUTS * 32) / 32).astype(np.float32)
    forward = QUIET if inputs == "continuous" else QUIET.replace(inp_res=1 / 64)
    tile = tile_of(device, compensation="none", forward=forward)
    tile.programming.adc_gains = GAINS
    sums = x.astype(np.float64) @ (W / SCALE).T
    wanted = levels(sums, GAINS)
    assert (np.abs(wanted * GAINS) == BOUND).any()
    agree(tile.forward(x) / SCALE, wanted, sums, GAINS)
    agree(tile.forward(x[:1]) / SCALE, wanted[:1], sums[:1], GAINS)  # kernels of single vectors
    plain = tile_of(device, compensation="none", forward=forward)
    assert np.abs(plain.forward(x) / SCALE - wanted).max() > STEP / 4
    plain.programming.adc_gains = 1.0
    agree(plain.forward(x) / SCALE, levels(sums, np.ones(D)), sums, np.ones(D))


@pytest.mark.parametrize("passes", ["pos_neg_separate", "pos_neg_separate_digital_sum"])
def test_passes_are_added_before_or_after_the_gain(device: str, passes: str) -> None:
    tile = tile_of(device, compensation="none", forward=QUIET.replace(mv_type=passes))
    tile.programming.adc_gains = GAINS
    w = (W / SCALE).T.astype(np.float64)
    parts = [np.maximum(INPUTS, 0.0) @ w, np.minimum(INPUTS, 0.0) @ w]
    if passes == "pos_neg_separate":
        agree(tile.forward(INPUTS) / SCALE, levels(SUMS, GAINS), SUMS, GAINS)
        return
    between = sum(np.abs(p * GAINS / STEP % 1 - 0.5) < 1e-4 for p in parts) > 0
    wanted = levels(parts[0], GAINS) + levels(parts[1], GAINS)
    found = tile.forward(INPUTS) / SCALE
    assert between.mean() < 0.02
    np.testing.assert_allclose(np.where(between, wanted, found), wanted, atol=2e-6)


@pytest.mark.parametrize("added", ["bit_serial", "bit_serial_analog_sum"])
def test_bits_of_inputs_are_converted_with_the_gain(device: str, added: str) -> None:
    forward = QUIET.replace(mv_type=added, inp_res=1 / 6)  # levels -3 ... 3: two slices of a bit
    tile = tile_of(device, compensation="none", forward=forward)
    tile.programming.adc_gains = GAINS
    w = (W / SCALE).T.astype(np.float64)
    whole = np.rint(np.clip(INPUTS, -1, 1).astype(np.float64) * 3)
    # Each slice drives the lines with the whole range, and counts by the worth of its bit.
    planes = [np.sign(whole) * (np.abs(whole).astype(int) >> k & 1) for k in (0, 1)]
    wanted = 0.0
    for k, plane in enumerate(planes):
        sums = plane @ w
        read = levels(sums, GAINS) if added == "bit_serial" else sums
        assert (np.abs(sums * GAINS / STEP % 1 - 0.5) > 1e-4).all()
        wanted = wanted + 2**k / 3 * read
    if added != "bit_serial":
        wanted = levels(wanted, GAINS)
    np.testing.assert_allclose(tile.forward(INPUTS) / SCALE, wanted, atol=2e-6)


def test_gains_of_one_have_the_bits_of_none(device: str) -> None:
    noisy = QUIET.replace(out_noise=0.05, out_asymmetry=0.1, w_noise=0.02, inp_noise=0.01,
                          w_noise_type="additive_constant", out_sto_round=True)  # fmt: skip
    plain = tile_of(device, forward=noisy)
    given = tile_of(device, forward=noisy)
    given.programming.adc_gains = GAINS
    assert not np.array_equal(plain.forward(INPUTS), given.forward(INPUTS))
    for tile in (plain, given):
        tile.programming.adc_gains = 1.0
        tile.programming.drift(60.0)
    assert np.array_equal(plain.forward(INPUTS), given.forward(INPUTS))
    # Halves and doubles change no bit of a read without steps and bounds.
    open_ended = noisy.replace(out_res=0, out_bound=0, out_sto_round=False)
    plain, given = (tile_of(device, forward=open_ended) for _ in range(2))
    given.programming.adc_gains = 2.0 ** (np.arange(D) - 2)
    assert np.array_equal(plain.forward(INPUTS), given.forward(INPUTS))


def test_output_noise_stands_before_the_gain() -> None:
    forward = QUIET.replace(out_noise=0.04, out_bound=0, out_res=0)
    tile = tile_of(compensation="none", forward=forward)
    tile.programming.adc_gains = GAINS
    noise = tile.forward(np.zeros((20000, X), dtype=np.float32)) / SCALE
    # 20000 numbers tell a deviation to 1 / sqrt(40000): 5 of these.
    np.testing.assert_allclose(noise.std(axis=0), 0.04, rtol=5 / 200)


def test_one_hot_reads_of_the_compensation_have_the_gains(device: str) -> None:
    memory = pl.noise_models.PCMLike(
        g_max=32.0, prog_noise_scale=0, read_noise_scale=0, drift_scale=1.0
    )
    tile = tile_of(device, noise_model=memory, compensation="per_output")
    tile.programming.adc_gains = GAINS
    tile.programming.program()
    sums = []
    for time in (0.0, 1e6):
        tile.programming.drift(time)
        g = tile.programming.conductances().astype(np.float64) / 32.0
        seen = levels((g[..., 0] - g[..., 1]).T, GAINS)
        sums.append(np.abs(seen).sum(axis=0) / X)
    least = np.maximum(sums, 1e-4)
    np.testing.assert_allclose(tile.programming.compensation, least[0] / least[1], rtol=1e-5)


def test_slices_apart_have_gains_of_their_own(device: str) -> None:
    tile = tile_of(device, cell="slices", compensation="none")
    gains = np.linspace(0.5, 3.0, 4 * D).reshape(4, D).astype(np.float32)
    tile.programming.adc_gains = gains
    assert np.array_equal(tile.programming.adc_gains, gains)
    g = tile.programming.conductances().reshape(D, X, -1, 2).astype(np.float64) / 32.0
    parts = (g[..., 0] - g[..., 1]).transpose(2, 1, 0)
    factors = [4.0**k * 3 / 127 for k in range(4)]
    wanted = sum(
        f * levels(INPUTS @ part, gain) for f, part, gain in zip(factors, parts, gains, strict=True)
    )
    between = [
        np.abs(INPUTS @ p * g / STEP % 1 - 0.5) < 1e-4 for p, g in zip(parts, gains, strict=True)
    ]
    unsure = np.any(between, axis=0)
    assert unsure.mean() < 0.02
    found = tile.forward(INPUTS) / SCALE
    np.testing.assert_allclose(np.where(unsure, wanted, found), wanted, atol=4e-6)


def test_states_and_other_peripheries_keep_gains(device: str) -> None:
    tile = tile_of(device)
    without = tile.state()
    tile.programming.adc_gains = GAINS
    before = tile.forward(INPUTS, evaluation=True)
    other: Any = HostReads(pl.Tile.from_state(tile.state(), device=device))
    assert np.array_equal(other.programming.adc_gains[0], GAINS)
    assert np.array_equal(other.forward(INPUTS, evaluation=True), before)
    assert np.array_equal(copy.deepcopy(tile).programming.adc_gains[0], GAINS)
    wider = tile.with_io(forward=QUIET.replace(out_bound=3.0))
    assert np.array_equal(wider.programming.adc_gains[0], GAINS)
    other.load_state(without)
    assert np.array_equal(other.programming.adc_gains, np.ones((1, D)))


@pytest.mark.parametrize(
    ("gains", "message"),
    [
        (np.ones(D + 1), r"gains of ADCs have shape \[7\]; give \[1, 6\]"),
        (np.ones((2, D)), r"give \[1, 6\]"),
        (0.0, "a gain of an ADC is 0; give finite numbers above 0"),
        (np.array([1, 1, -2, 1, 1, 1]), "is -2; give finite numbers"),
        (np.inf, "is inf; give finite numbers"),
    ],
)
def test_bad_gains_change_nothing(gains: float | NDArray[np.float64], message: str) -> None:
    tile = tile_of()
    tile.programming.adc_gains = GAINS
    with pytest.raises(pl.InputError, match=message):
        tile.programming.adc_gains = gains
    assert np.array_equal(tile.programming.adc_gains[0], GAINS)
    perfect = tile_of(forward=PERFECT)
    with pytest.raises(pl.ConfigError, match="reads without ADCs"):
        perfect.programming.adc_gains = 2.0


def layer_of(**settings: Any) -> Layer:
    """A layer of four tiles, of which one output is 0."""
    config = pl.InferenceConfig(forward=QUIET, scaling_per="tile", **settings)
    layer = pl.nn.AnalogLinear(
        X, D, bias=False, config=config, seed=1, max_input_size=6, max_output_size=4
    ).eval()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(W))
        layer.weight[1] = 0.0
    return layer


def sums_of(layer: Layer) -> list[NDArray[np.float64]]:
    """The sums before the ADCs of each tile, [slices, rows, outputs]."""
    found = []
    for rows, cols, _ in layer.tiles.parts():
        w = layer.weight.detach().numpy()[rows, cols].astype(np.float64)
        w /= np.abs(w).max()
        parts = [w]
        if layer.config.cell == "slices":
            whole = np.rint(np.abs(w).astype(np.float32) * np.float32(127)).astype(int)
            parts = [np.sign(w) * (whole >> 2 * k & 3) / 3 for k in range(4)]
        found.append(np.stack([np.abs(INPUTS[:, cols] @ part.T) for part in parts]))
    return found


@pytest.mark.parametrize(
    ("per", "cell"),
    [("tile", "pair"), ("output", "pair"), ("tile", "slices"), ("slice", "slices"),
     ("output", "slices")],
)  # fmt: skip
def test_property_64_ranges_hold_the_share_of_their_part(per: str, cell: str) -> None:
    x = torch.from_numpy(INPUTS)
    layer = layer_of(cell=cell)
    found = pl.inference.calibrate_outputs(layer, x.split(7), quantile=0.9, per=per)[""]
    assert layer.config.forward.out_bound == pytest.approx(found)
    assert layer.config.forward.bound_management == "none"
    axes = {"tile": (0, 1, 2), "slice": (1, 2), "output": (1,)}[per]
    parts = sums_of(layer)
    wanted = [np.quantile(s, 0.9, axis=axes, keepdims=True, method="inverted_cdf") for s in parts]
    largest = max(float(each.max()) for each in wanted)
    assert found == pytest.approx(largest, rel=2**-9)
    for tile, limits, sums in zip(layer.tiles, wanted, parts, strict=True):
        seen = np.broadcast_to(limits, (len(sums), 1, sums.shape[2]))[:, 0]
        zero = np.broadcast_to((sums == 0).all(axis=axes, keepdims=True).squeeze(1), seen.shape)
        gains = np.where(zero, 1.0, largest / np.where(seen == 0.0, 1.0, seen))
        some = (seen > 0) | zero
        assert some.mean() > 0.9
        np.testing.assert_allclose(tile.programming.adc_gains[some], gains[some], rtol=2**-8)
    # Whatever the split, the bits are the same; one range for the layer takes gains away.
    other = layer_of(cell=cell)
    pl.inference.calibrate_outputs(other, [x], quantile=0.9, per=per)
    for tile, same in zip(layer.tiles, other.tiles, strict=True):
        assert np.array_equal(tile.programming.adc_gains, same.programming.adc_gains)
    pl.inference.calibrate_outputs(other, [x], quantile=0.9)
    assert all((tile.programming.adc_gains == 1.0).all() for tile in other.tiles)


def test_own_ranges_make_small_outputs_exact() -> None:
    x = torch.from_numpy(INPUTS)
    errors = {}
    for per in ("layer", "output"):
        layer = layer_of()
        wanted = x @ layer.weight.T
        pl.inference.calibrate_outputs(layer, [x], quantile=1.0, per=per)
        errors[per] = (layer(x) - wanted).square().mean(dim=0).sqrt().detach()
    # Errors of rounding fall by the gain: the last output is half of the first of its tile.
    gain = layer.tiles.grid[1][1].programming.adc_gains[0, -1]
    assert gain > 1.5
    assert errors["output"][-1] < 0.7 * errors["layer"][-1]
    assert errors["output"][0] < 1.5 * errors["layer"][0]


def test_bad_parts_are_refused() -> None:
    x = torch.from_numpy(INPUTS)
    layer = layer_of()
    with pytest.raises(ValueError, match="per = 'column': write 'layer', 'tile', 'slice'"):
        pl.inference.calibrate_outputs(layer, [x], per="column")
    with pytest.raises(ValueError, match="no slices with converters apart; write per='tile'"):
        pl.inference.calibrate_outputs(layer, [x], per="slice")
    with pytest.raises(ValueError, match="got no input but 0"):
        pl.inference.calibrate_outputs(layer, [0 * x], per="output")
    assert layer.config.forward.out_bound == BOUND
    assert all((tile.programming.adc_gains == 1.0).all() for tile in layer.tiles)


def test_copies_with_other_settings_keep_the_gains() -> None:
    given = {"noise_model": pl.noise_models.PCMLike(**EXACT), "cell": "slices"}
    layer: Layer = pl.nn.AnalogLinear(X, D, config=pl.InferenceConfig(**given), seed=2).eval()
    x = torch.from_numpy(INPUTS)
    pl.inference.calibrate_outputs(layer, [x], per="output")
    gains = [tile.programming.adc_gains for tile in layer.tiles]
    assert any((each != 1.0).any() for each in gains)
    noisy = pl.inference.with_settings(layer, {"forward.out_noise": 0.1})
    found = [tile.programming.adc_gains for tile in noisy.tiles]
    assert all(map(np.array_equal, found, gains))
    same = pl.inference.with_settings(layer, {"compensation": layer.config.compensation})
    assert torch.equal(pl.program(same)(x), pl.program(layer)(x))
    for setting, value in (("slice_converters", "shared"), ("forward.is_perfect", True)):
        with pytest.raises(pl.ConfigError, match=r"layer '' has gains of ADCs, \[4, 6\], which"):
            pl.inference.with_settings(layer, {setting: value})
