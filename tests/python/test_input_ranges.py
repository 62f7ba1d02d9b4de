"""Converters of programmed arrays: what the array sees, learned and calibrated ranges, scales."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

QUIET = pl.IOParameters(
    inp_res=0, out_res=0, out_noise=0, inp_bound=1, out_bound=0, bound_management="none"
)


def inputs(rows: int = 7, cols: int = 20, seed: int = 1) -> np.ndarray:
    """Normal inputs, one row of zeros."""
    x = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)
    x[2] = 0.0
    return x


@pytest.mark.parametrize("rule", ["abs_max", "constant", "input_range", "none", "max"])
def test_the_array_sees_converted_inputs(rule: str) -> None:
    io = pl.IOParameters(
        noise_management=rule, nm_thres=0.8, inp_res=20, inp_asymmetry=0.1, inp_noise=0.5
    )
    tile = pl.Tile(3, 20, pl.InferenceConfig(forward=io), seed=1)
    x = inputs().astype(np.float64)
    scale = {
        "abs_max": np.minimum(np.abs(x).max(axis=1, keepdims=True), np.float32(0.8)),
        "max": x.max(axis=1, keepdims=True),
        "none": 1.0,
    }.get(rule, np.float64(np.float32(0.8)))
    scale = np.where(np.asarray(scale) == 0.0, 1.0, scale)
    levels = np.clip(np.round(x / scale * 10) / 10, -1, 1)
    expected = scale * np.where(levels < 0, 0.9 * levels, levels)
    assert np.abs(tile.programming.converted(x) - expected).max() < 1e-5


def test_property_67_gradients_of_weights_take_the_inputs_that_the_array_saw() -> None:
    io = pl.IOParameters(noise_management="constant", nm_thres=0.8, inp_res=16, out_noise=0)
    layer = pl.nn.AnalogLinear(
        20, 9, config=pl.InferenceConfig(forward=io), seed=1, max_input_size=8, max_output_size=5
    )
    x = torch.from_numpy(inputs())
    d = torch.from_numpy(inputs(7, 9, 2))
    (layer(x) * d).sum().backward()
    step = np.float32(0.8) / 8
    seen = np.clip(np.round(inputs() / step) * step, -0.8, 0.8)
    expected = inputs(7, 9, 2).T @ seen
    assert np.abs(layer.weight.grad.numpy() - expected).max() < 1e-4
    assert np.abs(layer.weight.grad.numpy() - inputs(7, 9, 2).T @ inputs()).max() > 0.1
    # Each group of a convolution has inputs of its own.
    conv = pl.nn.AnalogConv2d(
        4, 6, 3, groups=2, bias=False, config=pl.InferenceConfig(forward=io), seed=1,
        max_input_size=10,
    )  # fmt: skip
    images = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(1))
    y = conv(images)
    y.sum().backward()
    plain = conv.weight.detach().clone().requires_grad_()
    rounded = (images / step).round().mul(step).clamp(-0.8, 0.8)
    torch.nn.functional.conv2d(rounded, plain, groups=2).sum().backward()
    assert (conv.weight.grad - plain.grad).abs().max() < 1e-4


def ranged(limit: float = 0.0, **settings: object) -> torch.nn.Module:
    """A layer whose range is a parameter."""
    io = QUIET.replace(noise_management="input_range", nm_thres=limit)
    config = pl.InferenceConfig(forward=io, **settings)
    return pl.nn.AnalogLinear(20, 5, config=config, seed=1, max_input_size=12)


def test_property_67_a_range_has_the_gradient_of_a_clip() -> None:
    x = torch.from_numpy(inputs())
    layer = ranged(0.7)
    direction = torch.from_numpy(inputs(7, 5, 3))
    (layer(x) * direction).sum().backward()
    exact = x.double().clamp(-0.7, 0.7)
    w = layer.weight.detach().double()
    limit = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    seen = torch.minimum(torch.maximum(x.double(), -limit), limit)
    ((seen @ w.T + layer.bias.detach().double()) * direction.double()).sum().backward()
    assert layer.input_range.grad.item() == pytest.approx(limit.grad.item(), rel=1e-4)
    assert (layer.weight.grad - direction.T @ exact.float()).abs().max() < 1e-4
    # A finite difference of the range.
    with torch.no_grad():
        moved = []
        for step in (-1e-2, 1e-2):
            other = copy.deepcopy(layer)
            other.input_range.add_(step)
            moved.append((other(x) * direction).sum().item())
    assert (moved[1] - moved[0]) / 2e-2 == pytest.approx(limit.grad.item(), rel=2e-2)


def test_a_learned_range_is_a_parameter_and_a_fixed_one_reads_the_same() -> None:
    x = torch.from_numpy(inputs())
    layer = ranged()
    for mode in (True, False):
        with pytest.raises(pl.StateError, match="calibrate"):
            layer.train(mode)(x)
    pl.inference.calibrate(layer, [x], rule="max")
    assert layer.input_range.item() == pytest.approx(np.abs(inputs()).max(), rel=2e-3)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "input_range", "bias"]
    with torch.no_grad():
        layer.input_range.fill_(0.7)
    io = QUIET.replace(noise_management="constant", nm_thres=0.7)
    fixed = pl.nn.AnalogLinear(
        20, 5, config=pl.InferenceConfig(forward=io), seed=1, max_input_size=12
    )
    assert (layer(x) - fixed(x)).abs().max() < 1e-6
    loaded = ranged()
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded.eval()(x), layer.eval()(x))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    before = layer.input_range.item()
    (layer.train()(x) - x[:, :5]).square().sum().backward()
    optimizer.step()
    assert layer.input_range.item() != before
    # Pulsed cells have no calibration, and need the range itself.
    with pytest.raises(pl.ConfigError, match="nm_thres"):
        pl.Tile(2, 3, pl.SingleConfig(forward=pl.IOParameters(noise_management="input_range")))
    tile = pl.Tile(2, 3, pl.InferenceConfig(forward=QUIET.replace(noise_management="input_range")))
    with pytest.raises(pl.StateError, match="no range was set"):
        tile.forward(np.ones(3, dtype=np.float32))


def test_ranges_of_several_deviations() -> None:
    layer = ranged().eval()
    x = torch.from_numpy(inputs(500))
    found = pl.inference.calibrate(layer, x.split(70), rule="sigma", sigmas=3.0)
    assert found[""] == pytest.approx(3.0 * float(np.sqrt(np.mean(x.numpy() ** 2))), rel=2e-3)
    with pytest.raises(ValueError, match="sigmas"):
        pl.inference.calibrate(layer, [x], rule="sigma", sigmas=0.0)


@pytest.mark.parametrize("rule", ["abs_max", "constant", "input_range"])
def test_property_64_ranges_of_outputs_hold_their_share(rule: str) -> None:
    io = pl.IOParameters(noise_management=rule, nm_thres=1.5 if rule != "abs_max" else 0.0)
    config = pl.InferenceConfig(forward=io)
    layer = pl.nn.AnalogLinear(20, 6, config=config, seed=1, max_input_size=12).eval()
    x = torch.from_numpy(inputs(400))
    found = pl.inference.calibrate_outputs(layer, x.split(90), quantile=0.95)[""]
    assert layer.config.forward.out_bound == pytest.approx(found)
    sums = []
    w = layer.weight.detach().numpy().astype(np.float64)
    for lines in (slice(0, 10), slice(10, 20)):
        part = x[:, lines].numpy().astype(np.float64)
        scale = np.abs(part).max(axis=1, keepdims=True) if rule == "abs_max" else 1.5
        scale = np.where(np.asarray(scale) == 0.0, 1.0, scale)
        levels = np.clip(np.round(part / scale * 63) / 63, -1, 1)
        sums.append(np.abs(levels @ (w[:, lines] / np.abs(w[:, lines]).max(1)[:, None]).T))
    exact = np.quantile(np.concatenate([each.ravel() for each in sums]), 0.95)
    assert found == pytest.approx(exact, rel=4e-3)
    with pytest.raises(ValueError, match="quantile"):
        pl.inference.calibrate_outputs(layer, [x], quantile=0.0)


@pytest.mark.parametrize("per", ["output", "tile"])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 1.0])
def test_scales_are_quantiles_of_the_weights(per: str, quantile: float) -> None:
    exact = pl.noise_models.PCMLike(prog_noise_scale=0, read_noise_scale=0, drift_scale=0)
    config = pl.InferenceConfig(
        noise_model=exact, scaling_per=per, scaling_quantile=quantile, forward=QUIET
    )
    tile = pl.Tile(6, 20, config, seed=1)
    w = inputs(6, 20)
    tile.weights = w
    magnitudes = np.sort(np.abs(w if per == "output" else w.reshape(1, -1)), axis=1)
    rank = int(np.ceil(quantile * magnitudes.shape[1])) - 1
    scales = np.broadcast_to(magnitudes[:, rank], 6)
    assert np.array_equal(np.array(tile.programming.scales, dtype=np.float32), scales)
    seen = np.clip(w, -scales[:, None], scales[:, None])
    eye = np.eye(20, dtype=np.float32)
    assert np.abs(tile.forward(eye).T - seen).max() < 1e-5  # the weights, clipped
    tile.programming.program()
    assert np.abs(tile.weights - seen).max() < 1e-5
    with pytest.raises(pl.ConfigError, match="scaling_quantile"):
        pl.InferenceConfig(scaling_quantile=0.0)


def test_a_read_window_leaves_noise_to_each_read() -> None:
    x = inputs()
    quiet = QUIET.replace(noise_management="none", inp_bound=0)
    frozen = pl.Tile(4, 20, pl.InferenceConfig(forward=quiet), seed=1)
    fresh = pl.Tile(4, 20, pl.InferenceConfig(forward=quiet, read_window=0.1), seed=1)
    for tile in (frozen, fresh):
        tile.weights = inputs(4, 20, 5)
        tile.programming.program()
        tile.programming.drift(86400.0)
    assert np.array_equal(frozen.forward(x), frozen.forward(x))
    assert not np.array_equal(fresh.forward(x), fresh.forward(x))


def test_measured_conductances_are_checked() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig(), seed=1)
    tile.weights = inputs(3, 4)
    tile.programming.program(2)
    measured = tile.programming.conductances("programmed")
    tile.programming.program_measured(measured, 2)
    assert tile.programming.is_measured
    assert np.array_equal(tile.programming.conductances("programmed"), measured)
    for values, text in (
        (measured[:2], "shape"),
        (-1 - measured, "not negative"),
        (measured * np.nan, "must be finite"),
    ):
        with pytest.raises(pl.InputError, match=text):
            tile.programming.program_measured(values)
    assert np.array_equal(tile.programming.conductances("programmed"), measured)
    shifted = measured + np.float32(0.5)
    tile.programming.program_measured(shifted, 2)
    other = tile.with_io(forward=QUIET)  # other converters read the same devices
    assert other.programming.is_measured
    assert np.array_equal(other.programming.conductances("programmed"), shifted)


def test_a_range_that_was_loaded_or_set_is_checked() -> None:
    config = pl.InferenceConfig(forward=pl.IOParameters(noise_management="input_range", nm_thres=1))
    layer = pl.nn.AnalogLinear(5, 4, config=config, seed=3)
    x = torch.linspace(-1, 1, 10).reshape(2, 5)
    state = copy.deepcopy(layer.state_dict())
    with pytest.raises(RuntimeError, match="input_range has no values, or some not finite"):
        layer.load_state_dict(state | {"input_range": torch.tensor([float("nan")])})
    assert torch.equal(layer.state_dict()["input_range"], torch.ones(1))
    layer.load_state_dict(state | {"input_range": torch.tensor([-2.0])})
    with pytest.raises(pl.StateError, match=r"has the input range -2; call .*calibrate"):
        layer(x)
    layer.load_state_dict(state)
    assert layer(x).isfinite().all()
    with torch.no_grad():
        layer.input_range.fill_(0.0)  # by hand, after a read
    with pytest.raises(pl.StateError, match=r"has the input range 0; call .*calibrate"):
        layer(x)


def test_a_range_is_asked_for_before_errors_and_ranges_of_outputs_are_measured() -> None:
    layer = ranged().eval()
    x = torch.from_numpy(inputs(400))
    before = copy.deepcopy(layer.config)
    for call in (pl.inference.explain, lambda m, x: pl.inference.calibrate_outputs(m, [x])):
        with pytest.raises(pl.StateError, match=r"has the input range 0; call .*calibrate"):
            call(layer, x)
    assert layer.config == before
    assert layer.input_range.item() == 0.0
    pl.inference.calibrate(layer, [x], rule="max")
    found = pl.inference.calibrate_outputs(layer, [x], quantile=1.0)[""]
    sums = []
    w = layer.weight.detach()
    for lines in (slice(0, 10), slice(10, 20)):  # a tile each
        scaled = w[:, lines] / w[:, lines].abs().amax(dim=1, keepdim=True)
        sums.append((x[:, lines] / layer.input_range.item() @ scaled.T).abs().max().item())
    assert found == pytest.approx(max(sums), rel=2e-2)  # inputs are rounded
    assert pl.inference.explain(layer, x).totals[""] < 0.5


CALIBRATED = [pl.InferenceConfig(), pl.presets.ReRamCMO(), pl.presets.AnalogFoundation()]


@pytest.mark.parametrize("config", CALIBRATED, ids=["default", "ReRamCMO", "AnalogFoundation"])
def test_calibrated_ranges_are_part_of_a_state(config: pl.InferenceConfig) -> None:
    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Linear(6, 5)), torch.randn(8, 6)
    model = pl.convert_to_analog(net, config, seed=3).eval()
    pl.inference.calibrate(model, [x])
    pl.inference.calibrate_outputs(model, [x])
    again = pl.convert_to_analog(net, config, seed=9).eval()
    again.load_state_dict(model.state_dict())
    assert again[0].config == model[0].config
    assert torch.equal(pl.program(again, 2)(x), pl.program(model, 2)(x))
    other = config.replace(forward=config.forward.replace(out_noise=0.5))
    with pytest.raises(RuntimeError, match="was saved with another configuration"):
        pl.convert_to_analog(net, other).load_state_dict(model.state_dict())
