"""Conversion of torch models: what is converted, with which weights, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogConv2d, AnalogLinear, AnalogModule

IDEAL = pl.IdealConfig(
    forward=pl.IOParameters(is_perfect=True), backward=pl.IOParameters(is_perfect=True)
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(3 * 16, 8), nn.Tanh())
        self.head = nn.Linear(8, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(self.conv(x)))
        return y


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


def images() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((5, 1, 4, 4), np.float32))


def test_all_layers_are_converted_with_their_weights(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, seed=1)
    assert isinstance(analog.conv, AnalogConv2d)
    assert isinstance(analog.body[2], AnalogLinear)
    assert isinstance(analog.head, AnalogLinear)
    torch.testing.assert_close(analog(images()), model(images()), rtol=1e-5, atol=1e-5)
    assert isinstance(model.head, nn.Linear)  # the original is as it was


def test_tiles_have_numbers_of_their_own(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, seed=1, max_input_size=20)
    tiles = [tile for m in analog.modules() if isinstance(m, AnalogModule) for tile in m.tiles]
    assert len(tiles) == 1 + 3 + 1
    assert sorted(tile.tile_id for tile in tiles) == list(range(5))
    assert {tile.seed for tile in tiles} == {1}


def test_configuration_may_depend_on_the_layer(model: Net) -> None:
    def choose(name: str, layer: nn.Module) -> pl.TileConfig | None:
        if isinstance(layer, nn.Conv2d):
            return None
        return pl.LRTTConfig(rank=2) if name == "body.2" else IDEAL

    analog = pl.convert_to_analog(model, choose)
    assert type(analog.conv) is nn.Conv2d
    assert isinstance(analog.body[2].config, pl.LRTTConfig)
    assert isinstance(analog.head.config, pl.IdealConfig)


def test_excluded_layers_and_what_is_inside_stay_digital(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, exclude=["body", "head"])
    assert isinstance(analog.conv, AnalogConv2d)
    assert type(analog.body[2]) is nn.Linear
    assert type(analog.head) is nn.Linear
    with pytest.raises(ValueError, match=r"exclude = \['haed'\]: the model has no such layers"):
        pl.convert_to_analog(model, IDEAL, exclude=["haed"])


def test_shared_layers_stay_shared() -> None:
    layer = nn.Linear(3, 3)
    analog = pl.convert_to_analog(nn.Sequential(layer, nn.ReLU(), layer), IDEAL)
    assert isinstance(analog[0], AnalogLinear)
    assert analog[0] is analog[2]


def test_a_layer_alone_is_converted_and_frozen_weights_stay_frozen() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(requires_grad=False)
    analog = pl.convert_to_analog(layer.eval(), IDEAL)
    assert isinstance(analog, AnalogLinear)
    assert not analog.analog_weight.requires_grad
    assert not analog.training


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"),
     nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")],
)  # fmt: skip
def test_convolutions_without_an_analog_twin_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"layer '0' has .* [Ee]xclude it"):
        pl.convert_to_analog(nn.Sequential(layer), IDEAL)


def test_attention_is_left_alone() -> None:
    attention = nn.MultiheadAttention(8, 2)
    assert not any(
        isinstance(layer, AnalogModule)
        for layer in pl.convert_to_analog(attention, IDEAL).modules()
    )


def test_back_to_digital_gives_the_weights_a_perfect_read_sees(model: Net) -> None:
    config = pl.LRTTConfig(rank=2, forward=IDEAL.forward, backward=IDEAL.backward, transfer_every=0)
    analog = pl.convert_to_analog(model, config, seed=1)
    optimizer = pl.optim.AnalogSGD(analog.parameters(), lr=0.1)
    for _ in range(3):
        analog(images()).square().sum().backward()
        optimizer.step()
    digital = pl.convert_to_digital(analog)
    assert not any(isinstance(layer, AnalogModule) for layer in digital.modules())
    torch.testing.assert_close(digital(images()), analog(images()), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(digital.head.weight, model.head.weight)
