"""Hardware-aware training: weights that are parameters of torch, modified in training reads."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import DEVICES, same_bits

torch = pytest.importorskip("torch")
from pulsora.nn.clipping import clipped  # noqa: E402 - needs torch

RECORDED = Path(__file__).resolve().parents[1] / "data" / "inference_cases.json"
CASES = json.loads(RECORDED.read_text(encoding="utf-8"))["hwa"]
WEIGHTS = np.array(CASES["weights"], dtype=np.float32)
PERFECT = pl.IOParameters(is_perfect=True)
REPEATS = 1000
RECORDED_REPEATS = 4000

NAMES = {
    "AddNormal": "add_normal", "MultNormal": "mult_normal", "Discretize": "discretize",
    "DiscretizeAddNormal": "discretize_add_normal", "DoReFa": "dorefa", "Poly": "poly",
    "ProgNoise": "prog_noise", "DropConnect": "none",
}  # fmt: skip


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a recorded modifier."""
    names = {
        "std_dev": "modifier_std", "res": "modifier_res", "sto_round": "modifier_sto_round",
        "dorefa_clip": "modifier_clip", "coeffs": "modifier_coeff", "g_max": "modifier_g_max",
        "pdrop": "drop_connect", "assumed_wmax": "modifier_range",
    }  # fmt: skip
    values = {names[name]: value for name, value in given.items() if name in names}
    return {"modifier": NAMES[given["type"]], "modifier_per": "tile", **values}


def seen_in_training(tile: pl.Tile) -> np.ndarray:
    """The weights that one training read sees."""
    return tile.forward(np.eye(tile.x_size, dtype=np.float32)).T


def case_name(case: dict[str, Any]) -> str:
    """A name for a recorded case."""
    return "-".join(map(str, case["arguments"].values()))


@pytest.mark.parametrize("case", CASES["modifiers"], ids=case_name)
def test_property_63_modifiers_have_the_recorded_moments(case: dict[str, Any]) -> None:
    # N = 1000 reads against 4000 recorded ones, at five standard errors. That of a deviation
    # follows from the fourth moment of the reads, or of normal numbers if this is larger.
    config = pl.InferenceConfig(forward=PERFECT, **settings_of(case["arguments"]))
    # A last column that the peer leaves out, of the largest weight as well, is not read here.
    columns = WEIGHTS.shape[1] - bool(case["arguments"].get("copy_last_column"))
    tile = pl.Tile(WEIGHTS.shape[0], columns, config, seed=2)
    tile.weights = WEIGHTS[:, :columns]
    read = np.stack([seen_in_training(tile) for _ in range(REPEATS)]).astype(np.float64)
    mean, std = (np.array(case[name])[:, :columns] for name in ("mean", "std"))
    error = std * math.sqrt(1 / REPEATS + 1 / RECORDED_REPEATS)
    assert (np.abs(read.mean(axis=0) - mean) <= 5 * error + 3e-6).all()
    fourth = ((read - read.mean(axis=0)) ** 4).mean(axis=0)
    kurtosis = fourth / np.maximum(read.var(axis=0) ** 2, 1e-30)
    error_of_std = error * np.sqrt(np.maximum(kurtosis, 3.0) - 1.0) / 2
    assert (np.abs(read.std(axis=0) - std) <= 5 * error_of_std + 3e-6).all()


@pytest.mark.parametrize("drop", [0.02, 0.2, 0.7])
@pytest.mark.parametrize("modifier", ["none", "add_normal", "noise_model"])
def test_property_76_the_share_of_dropped_weights_is_the_one_asked_for(
    modifier: str, drop: float
) -> None:
    # N = 60 reads of 40 x 50 weights; shares are known to five standard errors.
    config = pl.InferenceConfig(forward=PERFECT, modifier=modifier, drop_connect=drop)
    tile = pl.Tile(40, 50, config, seed=4)
    tile.weights = np.random.default_rng(0).uniform(0.5, 1.0, (40, 50)).astype(np.float32)
    dropped = np.stack([seen_in_training(tile) == 0.0 for _ in range(60)])

    def require_share(found: np.ndarray, share: float) -> None:
        error = math.sqrt(share * (1 - share) / found.size)
        assert abs(found.mean() - share) < 5 * error

    require_share(dropped, drop)
    # Drops are independent: of one weight in two reads, of neighbours in a row and in a column.
    require_share(dropped[::2] & dropped[1::2], drop**2)
    require_share(dropped[:, ::2] & dropped[:, 1::2], drop**2)
    require_share(dropped[..., ::2] & dropped[..., 1::2], drop**2)


@pytest.mark.parametrize("case", CASES["clip"], ids=case_name)
def test_clipped_weights_are_the_recorded_ones(case: dict[str, Any]) -> None:
    given = case["arguments"]
    kinds = {
        "FixedValue": "fixed", "LayerGaussian": "gaussian",
        "AverageChannelMax": "average_channel_max",
    }  # fmt: skip
    config = pl.InferenceConfig(
        clip=kinds[given["type"]],
        clip_value=given.get("fixed_value", 0.0),
        clip_sigma=given.get("sigma", 2.5),
    )
    found = clipped(torch.from_numpy(WEIGHTS), config)
    assert np.abs(found.numpy() - np.array(case["result"])).max() < 2e-6


@pytest.mark.parametrize(
    "modifier", ["add_normal", "poly", "prog_noise", "discretize", "noise_model"]
)
@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_property_63_the_backward_read_sees_the_weights_of_its_forward(
    modifier: str, drop: float
) -> None:
    torch.manual_seed(1)
    config = pl.InferenceConfig(
        forward=PERFECT, modifier=modifier, modifier_res=0.1, drop_connect=drop
    )
    layer = pl.nn.AnalogLinear(7, 5, bias=False, config=config, seed=3, max_input_size=4)
    eye = torch.eye(7, requires_grad=True)
    first, second = layer(eye), layer(eye)
    assert (modifier == "discretize" and not drop) or not torch.equal(first, second)
    # Backward of the first read after the second: dx = d W' for d the unit vectors.
    for seen in (first, second):
        for i in range(5):
            (gradient,) = torch.autograd.grad(seen[0, i], eye, retain_graph=True)
            assert (gradient[0] - seen[:, i]).abs().max() < 1e-6


def test_property_63_gradients_are_finite_differences() -> None:
    torch.manual_seed(1)
    config = pl.InferenceConfig(forward=PERFECT, modifier="add_normal", modifier_std=0.1)
    for layer, x in (
        (pl.nn.AnalogLinear(6, 4, config=config, seed=3), torch.randn(5, 6)),
        (pl.nn.AnalogConv2d(4, 6, 3, groups=2, config=config, seed=3), torch.randn(2, 4, 5, 5)),
    ):
        x.requires_grad_()
        y = layer(x)
        direction = torch.randn_like(y)
        grads = torch.autograd.grad((y * direction).sum(), [x, layer.weight, layer.bias])
        # The noise is added to the weights, so y is linear in W, x and b under equal noise.
        plain = copy.deepcopy(layer).eval()
        for each, grad, moved in (
            (plain.weight, grads[1], "weight"), (plain.bias, grads[2], "bias"),
        ):  # fmt: skip
            step = torch.randn_like(each)
            before = (plain(x) * direction).sum()
            with torch.no_grad():
                each.add_(step)
            after = (plain(x) * direction).sum()
            expected = (grad * step).sum()
            assert (after - before).item() == pytest.approx(expected.item(), rel=1e-3), moved
            with torch.no_grad():
                each.sub_(step)


@pytest.mark.parametrize("clip", ["fixed", "gaussian", "learned"])
def test_frozen_weights_are_not_clipped(clip: str) -> None:
    torch.manual_seed(0)
    config = pl.InferenceConfig(clip=clip, clip_sigma=1.0, clip_value=0.1)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 5))
    model = pl.convert_to_analog(net, config, seed=1)
    model[0].requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    assert torch.equal(model[0].weight, net[0].weight)
    assert model[1].weight.abs().max() <= 0.1
    model[0].requires_grad_(requires_grad=True)
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    assert model[0].weight.abs().max() <= 0.1


def test_adapters_train_beside_a_programmed_base_with_a_clip() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=2, base_config=pl.presets.AnalogFoundation()
    )
    x, wanted = torch.randn(32, 8), torch.randn(32, 3)
    pl.inference.calibrate(model.eval(), [(x,)])
    pl.program(model)
    pl.drift(model, "1 day")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_any_optimizer_trains_and_state_dicts_are_those_of_torch() -> None:
    torch.manual_seed(0)
    config = pl.InferenceConfig(modifier="add_normal", clip="gaussian", clip_sigma=1.5)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    model = pl.convert_to_analog(net, config, seed=1)
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in net.named_parameters()
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, wanted = torch.randn(64, 8), torch.randn(64, 2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    weight = model[0].weight.detach()
    assert weight.abs().max() <= 1.5 * weight.std() * 1.2  # clipping lowers the deviation, too
    state = model.state_dict()
    assert torch.equal(state["0.weight"], weight)
    torch.nn.Sequential(
        torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)
    ).load_state_dict({name: state[name] for name in net.state_dict()})
    missing = model.load_state_dict(net.state_dict())
    assert not missing.missing_keys
    assert torch.equal(model[0].weight, net[0].weight)
    digital = pl.convert_to_digital(model)
    assert torch.equal(digital[0].weight, net[0].weight)


def test_property_63_a_resumed_training_has_the_bits_of_the_uninterrupted_one() -> None:
    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        config = pl.InferenceConfig(modifier="noise_model", drop_connect=0.1)
        layer = pl.nn.AnalogLinear(8, 4, config=config, seed=1, max_input_size=5)
        return layer, torch.optim.Adam(layer.parameters(), lr=0.01)

    def train(layer: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for i in range(3):
            optimizer.zero_grad()
            layer(torch.linspace(-1, i, 24).reshape(3, 8)).square().sum().backward()
            optimizer.step()

    whole, whole_optimizer = made()
    train(whole, whole_optimizer)
    resumed, optimizer = made()
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    optimizer.load_state_dict(copy.deepcopy(whole_optimizer.state_dict()))
    train(whole, whole_optimizer)
    train(resumed, optimizer)
    assert torch.equal(whole.weight, resumed.weight)
    assert torch.equal(whole.bias, resumed.bias)


def test_property_74_a_frozen_programmed_layer_is_the_array_in_training_too() -> None:
    config = pl.InferenceConfig(forward=PERFECT, modifier="add_normal")
    layer = pl.nn.AnalogLinear(6, 4, config=config, seed=3)
    layer.requires_grad_(requires_grad=False)
    pl.drift(pl.program(layer), "1 day")
    x = torch.randn(3, 6, requires_grad=True)
    y = layer.train()(x)
    assert torch.equal(y, layer.eval()(x))
    seen = torch.from_numpy(layer.tiles.grid[0][0].weights.copy())
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient - seen.sum(0)).abs().max() < 1e-5


def test_property_74_adapters_learn_on_a_base_that_keeps_its_bits() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 10), torch.nn.ReLU(), torch.nn.Linear(10, 4))
    x = torch.randn(64, 12)
    wanted = net(x).detach()
    config = pl.InferenceConfig(compensation="none", modifier="add_normal")
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=3, base_config=config, seed=1
    )
    pl.drift(pl.program(model), "1 year")
    tiles = pl.inference.programmed_tiles(model)
    seen = [(tile.weights.copy(), tile.programming.conductances()) for tile in tiles]
    adapters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(adapters, lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    for tile, before in zip(tiles, seen, strict=True):
        assert same_bits([tile.weights, tile.programming.conductances()], list(before))


def test_options_that_do_not_fit_are_refused() -> None:
    config = pl.InferenceConfig()
    with pytest.raises(ValueError, match="weight_scaling"):
        pl.nn.AnalogLinear(3, 2, config=config, weight_scaling="abs_max")
    with pytest.raises(ValueError, match="digital_bias"):
        pl.nn.AnalogLinear(3, 2, config=config, digital_bias=False)
    for settings, text in (
        ({"drop_connect": 1.0}, "drop_connect"),
        ({"modifier": "discretize"}, "modifier_res is 0"),
        ({"clip": "fixed"}, "clip_value is 0"),
        ({"modifier_times": [10.0, 1.0]}, "modifier_times"),
        ({"modifier": "poly", "modifier_coeff": []}, "modifier_coeff has no numbers"),
        ({"modifier": "prog_noise", "modifier_coeff": []}, "modifier_coeff has no numbers"),
        (
            {"modifier": "noise_model", "noise_model": pl.noise_models.ReRamWan2022()},
            "extrapolate=True",
        ),
    ):
        with pytest.raises(pl.ConfigError, match=text):
            pl.Tile(2, 2, pl.InferenceConfig(**settings))


@pytest.mark.parametrize("device", DEVICES)
def test_networks_of_several_layers_have_gradients_in_all_of_them(device: str) -> None:
    """The inputs of the second layer have a gradient, and its tiles convert them nevertheless."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    config = pl.InferenceConfig(forward=PERFECT, backward=PERFECT, modifier="add_normal")
    analog = pl.convert_to_analog(net, config, seed=1).to(device)
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    grads = []
    for model, of in ((net, x), (analog, x.to(device))):
        model(of).square().sum().backward()
        grads.append([each.grad.cpu() for each in model.parameters()])
    for one, other in zip(*grads, strict=True):  # the noise is of 0.1 of the largest weight
        assert torch.linalg.norm(one - other) < 0.5 * torch.linalg.norm(one)
        assert other.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_trains_to_the_bit() -> None:
    torch._dynamo.reset()
    ranged = pl.IOParameters(noise_management="input_range")
    config = pl.InferenceConfig(modifier="noise_model", clip="learned", forward=ranged)
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    states = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(32, 3)
        )
        model = pl.convert_to_analog(net, config, seed=1)
        pl.inference.calibrate(model.eval(), [x])
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = torch.compile(model, backend="eager") if compiled else model
        for _ in range(2):
            optimizer.zero_grad()
            run(x).square().sum().backward()
            optimizer.step()
        states.append(model.state_dict())
    first, second = states
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
