"""Analog layers: products, gradients, tile arrays, and a state that resumes to the bit."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogConv2d, AnalogLinear, AnalogModule, AnalogParameter
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ideal() -> pl.TileConfig:
    return pl.IdealConfig(**PERFECT)


def lrtt(**settings: Any) -> pl.TileConfig:
    return pl.LRTTConfig(rank=2, **({"transfer_every": 10} | settings))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def train(model: nn.Module, steps: range, lr: float = 0.1) -> list[float]:
    optimizer = AnalogSGD(model.parameters(), lr=lr)
    losses = []
    for step in steps:
        x, target = random(8, 12, seed=step), random(8, 3, seed=100 + step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def network(config: pl.TileConfig, **options: Any) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        AnalogLinear(12, 6, config=config, seed=5, **options),
        nn.Tanh(),
        AnalogLinear(6, 3, config=config, seed=5, tile_id=100, **options),
    )


@pytest.mark.parametrize("bias", ["digital", "analog", "none"])
def test_ideal_layer_equals_torch(bias: str) -> None:
    analog = AnalogLinear(
        12, 5, bias != "none", ideal(), digital_bias=bias == "digital", max_input_size=5
    )
    digital = nn.Linear(12, 5, bias != "none")
    analog.set_weights(digital.weight, digital.bias)
    optimizers = [AnalogSGD(analog.parameters(), 0.3), torch.optim.SGD(digital.parameters(), 0.3)]
    for layer, optimizer in zip((analog, digital), optimizers, strict=True):
        x = random(4, 3, 12, seed=1).requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        optimizer.step()
        assert y.shape == (4, 3, 5)
        layer.seen = (y.detach(), x.grad)
    for ours, theirs in zip(analog.seen, digital.seen, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    weight, offset = analog.get_weights()
    torch.testing.assert_close(weight, digital.weight.detach(), rtol=1e-5, atol=1e-5)
    if offset is not None:
        torch.testing.assert_close(offset, digital.bias.detach(), rtol=1e-5, atol=1e-5)


def test_convolution_equals_torch() -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "dilation": (1, 2)}
    analog = AnalogConv2d(3, 4, (3, 2), config=ideal(), **options)
    digital = nn.Conv2d(3, 4, (3, 2), **options)
    analog.set_weights(digital.weight.flatten(1), digital.bias)
    x = random(2, 3, 9, 8)
    torch.testing.assert_close(analog(x), digital(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"\[m, 3, height, width\]"):
        analog(random(2, 4, 9, 8))


@pytest.mark.parametrize(
    ("limits", "shape"),
    [((512, 512), (1, 1)), ((5, 2), (3, 3)), ((0, 3), (2, 1)), ((12, 0), (1, 1))],
)
def test_tile_arrays_split_evenly(limits: tuple[int, int], shape: tuple[int, int]) -> None:
    layer = AnalogLinear(12, 6, config=ideal(), max_input_size=limits[0], max_output_size=limits[1])
    assert (len(layer.tiles.rows), len(layer.tiles.cols)) == shape
    sizes = [tile.x_size for tile in layer.tiles.grid[0]]
    assert sum(sizes) == 12
    assert max(sizes) - min(sizes) <= 1
    assert len({tile.tile_id for tile in layer.tiles}) == len(layer.tiles)
    x = random(7, 12)
    weight, bias = layer.get_weights()
    assert bias is not None
    torch.testing.assert_close(layer(x), x @ weight.T + bias, rtol=1e-5, atol=1e-5)


def cut_in_nine(**options: Any) -> AnalogLinear:
    return AnalogLinear(
        12, 9, config=lrtt(), seed=3, max_input_size=4, max_output_size=3, **options
    )


def state_of(layer: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in layer.state_dict().values()]


@pytest.mark.parametrize("options", [{}, {"weight_scaling": 0.3}])
def test_weights_that_are_not_finite_are_refused_before_any_tile_is_written(
    options: dict[str, Any],
) -> None:
    layer = cut_in_nine(**options)
    before = state_of(layer)
    weights = torch.full((9, 12), 0.1)
    with pytest.raises(ValueError, match=r"scales.*above 0"):
        layer.tiles.set_weights(weights, torch.zeros(1))
    with pytest.raises(ValueError, match=r"weights\[0, 0\] is inf.*larger"):
        layer.tiles.set_weights(weights, torch.full((9,), 1e-40))
    weights[8, 11] = float("nan")  # of the last tile
    with pytest.raises(ValueError, match=r"weights\[8, 11\] is nan"):
        layer.set_weights(weights, torch.zeros(9))
    assert all(torch.equal(*pair) for pair in zip(state_of(layer), before, strict=True))


def test_tiles_are_replaced_by_a_grid_of_tiles_that_reads_see_as_weights_do() -> None:
    layer = cut_in_nine(bias=False)
    x = random(2, 12)
    layer(x)
    new = pl.Tile(3, 4, layer.config, seed=8)
    with pytest.raises(TypeError, match="item assignment"):
        layer.tiles.grid[0][0] = new  # type: ignore[index]
    (first, *row), *rows = layer.tiles.grid
    layer.tiles.grid = [[new, *row], *rows]
    copied = copy.deepcopy(layer)
    assert new.seed != first.seed
    assert torch.equal(layer(x), copied(x))


def test_a_state_of_more_tiles_is_refused() -> None:
    layer = cut_in_nine(bias=False)
    before = state_of(layer)
    state = layer.state_dict() | {"tiles.3_0.weights": torch.zeros(3, 4)}
    with pytest.raises(RuntimeError, match=r"tensors of tiles \['3_0'\].*over 3 x 3 tiles"):
        layer.load_state_dict(state)
    assert all(torch.equal(*pair) for pair in zip(state_of(layer), before, strict=True))


def test_seed_settles_the_layer_and_comes_from_torch_by_default() -> None:
    def weight(**options: Any) -> torch.Tensor:
        return AnalogLinear(12, 6, config=lrtt(), **options).weight

    torch.manual_seed(1)
    first, second = weight(), weight()
    torch.manual_seed(1)
    assert torch.equal(weight(), first)
    assert not torch.equal(first, second)
    assert torch.equal(weight(seed=3), weight(seed=3))
    assert not torch.equal(weight(seed=3), weight(seed=3, tile_id=1))


def test_the_parameter_stands_for_the_weights_without_holding_any() -> None:
    layer = AnalogLinear(12, 6, config=lrtt())
    (parameter,) = [p for p in layer.parameters() if isinstance(p, AnalogParameter)]
    assert parameter.shape == (6, 12)
    assert sum(p.numel() for p in layer.parameters()) == 6 * 12 + 6
    assert parameter.device == torch.device("cpu")
    assert parameter.dtype == torch.float32
    assert "analog_weight" not in layer.state_dict()


def test_moving_and_converting_a_model_leaves_tiles_alone() -> None:
    model = network(lrtt())
    before = model[0].weight
    model.to("cpu").float().train().eval()
    assert torch.equal(model[0].weight, before)
    half = model.to(torch.bfloat16)
    assert half[0].bias.dtype == torch.bfloat16
    assert model[0](random(2, 12).to(torch.bfloat16)).dtype == torch.bfloat16


def test_input_of_a_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x has shape \[2, 11\]: this layer takes 12 features"):
        AnalogLinear(12, 6, config=lrtt())(random(2, 11))


def test_property_07_values_that_are_not_finite_change_nothing() -> None:
    layer = AnalogLinear(12, 6, config=lrtt(), max_input_size=4)
    optimizer = AnalogSGD(layer.parameters(), lr=0.1)
    before = layer.weight
    (layer(random(2, 12)).sum() * float("nan")).backward()
    with pytest.raises(ValueError, match=r"d\[0, 0\] is -?nan"):
        optimizer.step()
    assert torch.equal(layer.weight, before)


def test_clipped_weights_are_reported() -> None:
    config = pl.SingleConfig(device=pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0))
    layer = AnalogLinear(2, 2, bias=False, config=config)
    with pytest.warns(UserWarning, match="2 of 4 weights"):
        layer.set_weights(torch.tensor([[0.5, 3.0], [-3.0, 0.1]]))
    torch.testing.assert_close(layer.weight, torch.tensor([[0.5, 0.6], [-0.6, 0.1]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((torch.zeros(6, 11), torch.zeros(6)), "shape"), ((torch.zeros(6, 12), None), "bias is None")],
)
def test_set_weights_refuses_what_does_not_fit(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnalogLinear(12, 6, config=lrtt()).set_weights(*arguments)


def test_set_weights_says_whether_a_layer_has_a_bias() -> None:
    weight = torch.zeros(6, 12)
    with pytest.raises(ValueError, match=r"but this layer has one: give a tensor of shape \[6\]"):
        AnalogLinear(12, 6).set_weights(weight)
    with pytest.raises(ValueError, match="bias was given, but this layer has none: leave it out"):
        AnalogLinear(12, 6, bias=False).set_weights(weight, torch.zeros(6))


def through_torch_save(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    del folder
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def through_safetensors(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    save_file(state, folder / "model.safetensors")
    return dict(load_file(folder / "model.safetensors"))


@pytest.mark.parametrize("container", [through_torch_save, through_safetensors])
@pytest.mark.parametrize("max_input_size", [0, 5])
def test_property_38_resume_equals_an_uninterrupted_run(
    container: Callable[[dict[str, Any], Path], dict[str, Any]],
    max_input_size: int,
    tmp_path: Path,
) -> None:
    whole = network(lrtt(), max_input_size=max_input_size)
    losses = train(whole, range(14))
    first = network(lrtt(), max_input_size=max_input_size)
    assert train(first, range(7)) == losses[:7]  # 56 samples: in the middle of a transfer cycle
    state = container(first.state_dict(), tmp_path)
    # A new process knows neither the seeds nor the weights of the old one.
    second = nn.Sequential(
        AnalogLinear(12, 6, config=lrtt(), max_input_size=max_input_size),
        nn.Tanh(),
        AnalogLinear(6, 3, config=lrtt(), max_input_size=max_input_size),
    )
    second.load_state_dict(state)
    assert train(second, range(7, 14)) == losses[7:]
    assert torch.equal(second[0].weight, whole[0].weight)


def test_a_state_leaves_how_products_are_made() -> None:
    layer, other = (AnalogLinear(12, 6, max_input_size=5) for _ in range(2))
    for tile in layer.tiles:
        tile.gpu_products = "tf32"
    layer.load_state_dict(other.state_dict())
    assert [tile.gpu_products for tile in layer.tiles] == ["tf32"] * 3


def test_state_dict_names_weights_and_cells() -> None:
    names = set(network(lrtt()).state_dict())
    assert {"0.bias", "0.tiles.0_0.visible/weights", "0.tiles.0_0.visible/cells"} <= names
    assert {name.split(".")[0] for name in names} == {"0", "2"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: network(lrtt(transfer_every=11)), "another configuration"),
        (lambda: network(lrtt(), max_input_size=4), "size"),
    ],
)
def test_a_state_of_another_layer_is_refused(
    other: Callable[[], nn.Sequential], message: str
) -> None:
    model = other()
    before = model[0].weight
    with pytest.raises(RuntimeError, match=message):
        model.load_state_dict(network(lrtt()).state_dict())
    assert torch.equal(model[0].weight, before)


def test_a_state_without_tiles_is_missing_keys() -> None:
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.tiles"):
        network(lrtt()).load_state_dict({"0.bias": torch.zeros(6), "2.bias": torch.zeros(3)})


def test_a_deep_copy_goes_on_by_itself_as_the_original_would() -> None:
    model = network(lrtt())
    train(model, range(3))
    twin = copy.deepcopy(model)
    assert isinstance(twin[0], AnalogModule)
    assert twin[0].tiles is not model[0].tiles
    assert train(twin, range(3, 6)) == train(model, range(3, 6))


def test_print_shows_the_configuration() -> None:
    assert repr(AnalogLinear(12, 6, config=lrtt(), max_input_size=6)) == (
        "AnalogLinear(in_features=12, out_features=6, bias=True, "
        "config=LRTTConfig(rank=2, visible=ConstantStep, fast=LinearStep, transfer_every=10), "
        "tiles=1x2)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_features": 0, "out_features": 3}, "in_features = 0"),
        ({"in_features": 3, "out_features": 0}, "out_features = 0"),
        ({"in_features": 3, "out_features": 3, "max_input_size": -1}, "max_input_size = -1"),
    ],
)
def test_impossible_sizes_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnalogLinear(**options)
