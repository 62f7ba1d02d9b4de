"""Conversion of layers that share weights, or whose weights are frozen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear
from test_convert import IDEAL, PERFECT
from test_convert_own import OwnLinear, own_linear


def step(model: nn.Module) -> None:
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def test_tied_layers_stay_tied_there_and_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    analog = pl.convert_to_analog(model, IDEAL, seed=1, max_input_size=2)
    assert analog[0].tiles is analog[2].tiles
    digital = pl.convert_to_digital(analog)
    assert digital[0].weight is digital[2].weight
    step(analog)
    optimizer = torch.optim.SGD(digital.parameters(), lr=0.1)
    digital(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    torch.testing.assert_close(analog[2].weight, digital[2].weight.detach())
    assert not torch.equal(analog[0].bias, analog[2].bias)


def test_tied_biases_stay_tied_there_and_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Conv1d(3, 3, 1))
    model[1].bias = model[2].bias = model[0].bias
    analog = pl.convert_to_analog(model, IDEAL)
    digital = pl.convert_to_digital(analog)
    for each in (analog, digital):
        assert each[0].bias is each[1].bias
        assert each[0].bias is each[2].bias
    assert digital[0].bias is not analog[0].bias
    assert torch.equal(digital[0].bias, model[0].bias)


def test_tied_biases_of_recurrent_layers_stay_tied_there_and_back() -> None:
    model = nn.Sequential(nn.GRU(3, 3), nn.GRU(3, 3))
    model[1].bias_hh_l0 = model[0].bias_hh_l0
    analog = pl.convert_to_analog(model, IDEAL)
    digital = pl.convert_to_digital(analog)
    for each in (analog, digital):
        assert each[0].bias_hh_l0 is each[1].bias_hh_l0
        assert each[0].bias_ih_l0 is not each[1].bias_ih_l0
    assert digital[0].bias_hh_l0 is not analog[0].bias_hh_l0
    x = torch.ones(2, 1, 3)
    before = digital[0](x)[0]
    with torch.no_grad():
        digital[1].bias_hh_l0 += 1.0
    assert not torch.equal(digital[0](x)[0], before)


def tied(first: nn.Module, second: nn.Module) -> nn.Module:
    second.weight = first.weight
    return nn.Sequential(first, second)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (tied(nn.Linear(3, 3), nn.Linear(3, 3)), {"exclude": ["0"]}),
        (tied(nn.Linear(3, 3), nn.Linear(3, 3)), {"digital_bias": False}),
    ],
)
def test_ties_that_would_break_are_refused_by_name(
    model: nn.Module, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="layers '0' and '1' share a parameter"):
        pl.convert_to_analog(model, IDEAL, **options)


def test_a_layer_tied_to_a_table_stays_digital_unless_it_is_untied() -> None:
    model = tied(nn.Embedding(3, 3), nn.Linear(3, 3))
    with pytest.warns(UserWarning, match=r"1 \(Linear: its weight is the table '0', too"):
        kept = pl.convert_to_analog(model, IDEAL)
    assert kept[1].weight is kept[0].weight
    with pytest.warns(UserWarning, match="stay digital"):
        pl.convert_to_analog(model, IDEAL, digital_bias=False)
    parted = pl.convert_to_analog(model, IDEAL, untie=["1"])
    assert isinstance(parted[1], AnalogLinear)
    torch.testing.assert_close(parted[1].weight + 0.0, model[1].weight.detach())
    assert model[1].weight is model[0].weight
    assert pl.conversion_report(parted).analog == ["1"]
    with pytest.raises(ValueError, match="untie has '1', which does not share"):
        pl.convert_to_analog(nn.Sequential(nn.ReLU(), nn.Linear(3, 3)), IDEAL, untie=["1"])
    with pytest.raises(ValueError, match=r"untie = \['2'\]: the model has no such layers"):
        pl.convert_to_analog(model, IDEAL, untie=["2"])


def test_tied_layers_of_two_configurations_are_refused() -> None:
    model = tied(nn.Linear(3, 3), nn.Linear(3, 3))
    with pytest.raises(ValueError, match="different configurations"):
        pl.convert_to_analog(
            model, lambda name, _: IDEAL if name == "0" else pl.SingleConfig(**PERFECT)
        )


def test_a_layer_that_occurs_twice_is_excluded_as_a_whole() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="occurs several times"):
        pl.convert_to_analog(nn.Sequential(layer, nn.ReLU(), layer), IDEAL, exclude=["0"])
    analog = pl.convert_to_analog(nn.Sequential(layer, nn.ReLU(), layer), IDEAL)
    digital = pl.convert_to_digital(analog)
    assert digital[0] is digital[2]


def test_weights_that_a_function_would_part_are_refused() -> None:
    def convert(layer: nn.Linear, config: pl.TileConfig, **options: Any) -> nn.Module:
        return nn.Sequential(own_linear(layer, config, **options))

    with pytest.raises(ValueError, match="layer '1' shares its weight"):
        pl.convert_to_analog(
            tied(nn.Linear(3, 3), nn.Linear(3, 3)), IDEAL, conversions={nn.Linear: convert}
        )
    with pytest.raises(ValueError, match="share a parameter"):
        pl.convert_to_analog(
            tied(OwnLinear(3, 3), OwnLinear(3, 3)), IDEAL, conversions={OwnLinear: own_linear}
        )


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_frozen_stays_frozen_there_and_back(weight: bool, bias: bool) -> None:
    layer = nn.Linear(3, 3)
    layer.weight.requires_grad_(weight)
    layer.bias.requires_grad_(bias)
    analog = pl.convert_to_analog(nn.Sequential(layer), IDEAL)
    before, offset = analog[0].get_weights()
    if weight or bias:
        step(analog)
    assert torch.equal(analog[0].weight, before) != weight
    assert torch.equal(analog[0].bias, offset) != bias
    digital = pl.convert_to_digital(analog)[0]
    assert (digital.weight.requires_grad, digital.bias.requires_grad) == (weight, bias)
    if weight != bias:
        with pytest.raises(ValueError, match="layer '0' has only one of weight and bias frozen"):
            pl.convert_to_analog(nn.Sequential(layer), IDEAL, digital_bias=False)


PERFECT_ARRAYS = [
    pl.InferenceConfig(**PERFECT),
    pl.MixedPrecisionConfig(**PERFECT),
]


@pytest.mark.parametrize("config", PERFECT_ARRAYS, ids=lambda config: config.kind)
def test_arrays_of_a_tied_parameter_are_told_apart_on_the_way_back(config: pl.TileConfig) -> None:
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    model[1].weight = model[0].weight
    with torch.no_grad():
        model[0].weight.mul_(0.1)
    analog = pl.convert_to_analog(model, config, seed=1).eval()
    is_programmed = config.kind == "inference"
    if is_programmed:
        unprogrammed = pl.convert_to_digital(analog)
        assert unprogrammed[0].weight is unprogrammed[1].weight
        pl.drift(pl.program(analog), "1 year")
    digital = pl.convert_to_digital(analog, programmed=is_programmed)
    x = torch.randn(8, 6)
    torch.testing.assert_close(digital(x), analog(x), rtol=1e-4, atol=1e-5)
    assert digital[0].weight is not digital[1].weight
    assert analog[0].weight is analog[1].weight
