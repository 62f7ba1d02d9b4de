"""Order of parameters, on which saved states of optimisers depend."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.forecast.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig()


def names(layer: nn.Module) -> list[str]:
    return [name for name, _ in layer.named_parameters()]


@pytest.mark.parametrize("learns", [False, True])
def test_the_weight_comes_first_whatever_happens_to_a_layer(learns: bool) -> None:
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL, learn_out_scaling=learns)
    expected = ["analog_weight", "bias"] + ["out_scaling"] * learns
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    old = copy.deepcopy(layer)
    weight = old._parameters.pop("analog_weight")
    old._parameters["analog_weight"] = weight  # the order of earlier versions
    for each in (
        layer,
        layer.to("cpu"),
        layer.double().float(),
        copy.deepcopy(layer),
        copy.deepcopy(old),
        torch.load(file, weights_only=False),
    ):
        assert names(each) == expected


def model(learns: bool = False, per: str = "layer") -> nn.Sequential:
    torch.manual_seed(0)
    digital = nn.Sequential(
        nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)
    )
    made: Any = pl.convert_to_analog(digital, IDEAL, learn_out_scaling=learns, scaling_per=per)
    return made


def steps(trained: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    x = torch.linspace(-1.0, 1.0, 40).reshape(8, 5)
    for _ in range(count):
        optimizer.zero_grad()
        trained(x).pow(2).sum().backward()
        optimizer.step()


ORDERS: dict[str, Callable[[list[str]], list[str]]] = {
    "unmoved": lambda own: sorted(own, key=["bias", "analog_weight", "out_scaling"].index),
    "moved": lambda own: sorted(own, key=["bias", "out_scaling", "analog_weight"].index),
}


@pytest.mark.filterwarnings("ignore:analog layers train by plain SGD")
@pytest.mark.parametrize("frozen", [None, "0.bias", "1.weight", "2.bias"])
@pytest.mark.parametrize("per", ["layer", "output"])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_a_state_of_an_earlier_version_is_loaded_in_its_order(
    order: str, learns: bool, per: str, frozen: str | None
) -> None:
    if order == "moved" and learns and frozen and per == "output" and frozen.endswith("bias"):
        pytest.skip("a scale and a bias of one shape cannot be told apart")
    first = model(learns, per)
    if frozen:
        first.get_parameter(frozen).requires_grad_(requires_grad=False)
    whole = copy.deepcopy(first)
    by = {"lr": 0.01, "weight_decay": 0.0}
    steps(whole, pl.optim.AnalogAdam(whole.parameters(), **by), 6)

    # The parameters in the order that earlier versions had.
    old: list[nn.Parameter] = []
    for layer in first:
        own = dict(layer.named_parameters())
        chosen = ORDERS[order](list(own)) if "analog_weight" in own else list(own)
        old += [own[name] for name in chosen]
    optimizer = pl.optim.AnalogAdam(old, **by)
    steps(first, optimizer, 3)
    resumed = pl.optim.AnalogAdam(first.parameters(), **by)
    resumed.load_state_dict(optimizer.state_dict())
    steps(first, resumed, 3)
    for mine, theirs in zip(first.state_dict().items(), whole.state_dict().items(), strict=True):
        assert mine[0] == theirs[0]
        assert torch.equal(mine[1], theirs[1])


def test_a_hybrid_training_keeps_the_order_of_its_saved_histories() -> None:
    trained = model(learns=True)
    optimizer = pl.optim.AnalogSGD(trained.parameters(), lr=0.1)
    shapes = Weights(trained, optimizer, None).shapes
    assert shapes == [[4], [4, 5], [1], [4], [4], [4], [4, 4], [1], [3], [3, 4], [1]]


@pytest.mark.filterwarnings("ignore:analog layers train by plain SGD")
@pytest.mark.parametrize("kind", ["linear", "conv", "lstm", "lstm2", "projected"])
def test_a_state_of_a_digital_run_goes_on_for_digital_parameters(kind: str) -> None:
    torch.manual_seed(0)
    digital: Any = {
        "linear": lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 4)),
        "conv": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)),
        "lstm": lambda: nn.Sequential(nn.LayerNorm(12), nn.LSTM(12, 3)),
        "lstm2": lambda: nn.Sequential(nn.LSTM(4, 4, 2, bidirectional=True)),
        "projected": lambda: nn.Sequential(nn.LSTM(4, 4, 2, proj_size=2)),
    }[kind]()
    optimizer = torch.optim.Adam(digital.parameters(), lr=0.01)
    for parameter in digital.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    analog = pl.convert_to_analog(digital, IDEAL)
    resumed = pl.optim.AnalogAdam(analog.parameters(), lr=0.01)
    with pytest.warns(UserWarning, match="are left out"):
        resumed.load_state_dict(optimizer.state_dict())
    found = {
        name: resumed.state[parameter]["exp_avg"]
        for name, parameter in analog.named_parameters()
        if not name.endswith("analog_weight")
    }
    wanted = {
        name: optimizer.state[parameter]["exp_avg"]
        for name, parameter in digital.named_parameters()
        if name in found
    }
    assert set(found) == set(wanted)
    for name, average in wanted.items():
        assert torch.equal(found[name], average), name
    for name, parameter in analog.named_parameters():
        assert not (name.endswith("analog_weight") and resumed.state.get(parameter))
