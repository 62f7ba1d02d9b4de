"""Weights that change between a forward and its backward pass."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig()
PERFECT = pl.IOParameters(is_perfect=True)
LRTT = pl.LRTTConfig(rank=2, forward=PERFECT, backward=PERFECT)

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: pl.nn.AnalogLinear(6, 4, bias=False, config=IDEAL), (1, 6)),
    "bias in cells": (lambda: pl.nn.AnalogLinear(6, 4, config=IDEAL, digital_bias=False), (1, 6)),
    "conv": (lambda: pl.nn.AnalogConv2d(2, 4, 3, bias=False, config=IDEAL), (1, 2, 4, 4)),
    "lstm": (lambda: pl.nn.AnalogLSTM(6, 4, bias=False, config=IDEAL), (3, 1, 6)),
    "gated": (
        lambda: pl.nn.GatedAdapter(pl.nn.AnalogLinear(6, 4, bias=False, config=LRTT), gate=0.5),
        (1, 6),
    ),
}


def by_step(layer: nn.Module) -> None:
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    y = layer(torch.ones(SHAPES[type(layer)]))
    (y[0] if isinstance(y, tuple) else y).sum().backward()
    optimizer.step()


SHAPES: dict[type, tuple[int, ...]] = {
    pl.nn.AnalogLinear: (1, 6),
    pl.nn.AnalogConv2d: (1, 2, 4, 4),
    pl.nn.AnalogLSTM: (3, 1, 6),
    pl.nn.GatedAdapter: (1, 6),
}


def by_writing(layer: nn.Module) -> None:
    for part in layer.modules():
        if isinstance(part, pl.nn.AnalogModule):
            part.set_weights(*part.get_weights())


def by_loading(layer: nn.Module) -> None:
    layer.load_state_dict(layer.state_dict())


@pytest.mark.filterwarnings("ignore:.*of .* weights")
@pytest.mark.parametrize("change", [by_step, by_writing, by_loading])
@pytest.mark.parametrize("name", LAYERS)
def test_a_change_before_the_backward_pass_is_torchs_error(
    name: str, change: Callable[[nn.Module], None]
) -> None:
    make, shape = LAYERS[name]
    layer = make()
    x = torch.ones(shape, requires_grad=True)
    y = layer(x)
    change(layer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y[0] if isinstance(y, tuple) else y).sum().backward()
    y = layer(x)
    (y[0] if isinstance(y, tuple) else y).sum().backward()


def test_a_first_layer_needs_no_backward_read() -> None:
    """Only the gradient of the input needs the weight, as in torch."""
    layer = pl.nn.AnalogLinear(6, 4, bias=False, config=IDEAL)
    y = layer(torch.ones(1, 6))
    by_writing(layer)
    y.sum().backward()


def pair() -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(0)
    digital = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))
    analog: Any = pl.convert_to_analog(copy.deepcopy(digital), IDEAL)
    return digital, analog


def gap(digital: nn.Module, analog: nn.Module) -> float:
    back = pl.convert_to_digital(analog)
    return max(
        float((p - q).detach().abs().max())
        for p, q in zip(digital.parameters(), back.parameters(), strict=True)
    )


def in_backward(model: nn.Module, made: Any) -> None:  # noqa: ANN401
    optimizers = {p: made([p], lr=0.1) for p in model.parameters()}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for i in range(4):
        x = torch.full((3, 4), 0.3 * i, requires_grad=True)
        model(model(x)).pow(2).sum().backward()  # each layer twice
        assert x.grad is not None


def truncated(model: nn.Module, made: Any) -> None:  # noqa: ANN401
    optimizer = made(model.parameters(), lr=0.1)
    h = torch.ones(3, 4)
    for _ in range(5):
        h = model(h)
        optimizer.zero_grad()
        h.pow(2).sum().backward()
        optimizer.step()
        h = h.detach()


def two_losses(model: nn.Module, made: Any) -> None:  # noqa: ANN401
    optimizer = made(model.parameters(), lr=0.1)
    for _ in range(4):
        y = model(torch.ones(3, 4))
        optimizer.zero_grad()
        y.pow(2).sum().backward(retain_graph=True)
        (y - 1.0).abs().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("train", [in_backward, truncated, two_losses])
def test_legitimate_orders_equal_torch(train: Callable[[nn.Module, Any], None]) -> None:
    digital, analog = pair()
    train(digital, torch.optim.SGD)
    train(analog, pl.optim.AnalogSGD)
    assert gap(digital, analog) < 2e-6


def test_a_move_is_no_change() -> None:
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL)
    x = torch.ones(1, 6, requires_grad=True)
    y = layer(x)
    layer.analog_weight.move(torch.device("cpu"))
    y.sum().backward()
    assert torch.allclose(x.grad, layer.get_weights()[0].sum(0))
