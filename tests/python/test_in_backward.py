"""`in_backward=True`: pulses in the backward pass, with the bits of `step()`."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from conftest import CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS: dict[str, Callable[[Any], list[torch.nn.Module]]] = {
    "linear": lambda config: [
        pl.nn.AnalogLinear(8, 7, config=config, seed=1),
        torch.nn.Tanh(),
        pl.nn.AnalogLinear(7, 8, config=config, seed=2, max_input_size=4, max_output_size=5),
    ],
    "digital bias and norm": lambda config: [
        pl.nn.AnalogLinear(8, 8, config=config, seed=1),
        torch.nn.LayerNorm(8),
        torch.nn.Linear(8, 8),
    ],
}


def model_of(name: str, config: pl.TileConfig) -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(*LAYERS[name](config))


def bits(model: torch.nn.Module) -> list[bytes]:
    analog = [
        pl.state.dumps(tile.state())
        for layer in model.modules()
        if isinstance(layer, pl.nn.AnalogLinear)
        for tile in layer.tiles
    ]
    return analog + [
        each.detach().numpy().tobytes()
        for each in model.parameters()
        if "Analog" not in type(each).__name__
    ]


def counter(layer: torch.nn.Module, name: str) -> int:
    assert isinstance(layer, pl.nn.AnalogLinear)
    return next(iter(layer.tiles)).counters[name]


def trained(
    model: torch.nn.Module, *, in_backward: bool, steps: int = 3, **settings: Any
) -> list[bytes]:
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.05, in_backward=in_backward, **settings)
    torch.manual_seed(4)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
    return bits(model)


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_the_bits_are_those_of_step(kind: str, name: str) -> None:
    made = [trained(model_of(name, CONFIGS[kind]()), in_backward=each) for each in (False, True)]
    assert made[0] == made[1]


def test_a_layer_that_is_used_twice_gets_one_mini_batch() -> None:
    def run(*, in_backward: bool) -> list[bytes]:
        layer = pl.nn.AnalogLinear(8, 8, config=pl.SingleConfig(), seed=1)
        return trained(torch.nn.Sequential(layer, torch.nn.Tanh(), layer), in_backward=in_backward)

    assert run(in_backward=True) == run(in_backward=False)


def test_groups_maximize_schedulers_and_other_optimizers() -> None:
    def run(*, in_backward: bool) -> list[bytes]:
        model = model_of("digital bias and norm", pl.SingleConfig())
        optimizer = pl.optim.AnalogOptimizer(
            torch.optim.AdamW,
            model.parameters(),
            lr=0.01,
            analog_lr=0.3,
            maximize=True,
            in_backward=in_backward,
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        torch.manual_seed(4)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 8)).square().mean().backward()
            optimizer.step()
            schedule.step()
        return bits(model)

    assert run(in_backward=True) == run(in_backward=False)


def test_factors_are_freed_in_the_backward_pass() -> None:
    layer = pl.nn.AnalogLinear(8, 8, config=pl.SingleConfig(), seed=1)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1, in_backward=True)
    layer(torch.randn(5, 8)).sum().backward()
    gradient = layer.analog_weight.grad
    assert gradient is not None
    assert gradient.factors.pairs is None
    optimizer.step()
    assert layer.analog_weight.grad is None
    assert counter(layer, "mini_batches") == 1


def test_accumulation_is_refused() -> None:
    layer = pl.nn.AnalogLinear(8, 8, config=pl.SingleConfig(), seed=1)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1, in_backward=True)
    layer(torch.randn(5, 8)).sum().backward()
    before = counter(layer, "update_samples")
    with pytest.raises(RuntimeError, match=r"second backward pass .*in_backward=False"):
        layer(torch.randn(5, 8)).sum().backward()
    assert counter(layer, "update_samples") == before == 5
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="call step"):
        layer(torch.randn(5, 8)).sum().backward()
    optimizer.step()
    layer(torch.randn(5, 8)).sum().backward()
    assert counter(layer, "update_samples") == 10


def test_clipping_and_scaling_are_refused() -> None:
    layer = pl.nn.AnalogLinear(8, 8, config=pl.SingleConfig(), seed=1)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1, in_backward=True)
    layer(torch.randn(5, 8)).sum().backward()
    with pytest.raises(RuntimeError, match=r"become pulses .*in_backward=False"):
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match=r"become pulses .*GradScaler"):
        scaler.unscale_(optimizer)


def test_what_a_layer_refuses_leaves_it_as_it_was() -> None:
    layer = pl.nn.AnalogLinear(8, 8, config=pl.SingleConfig(), seed=1)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1, in_backward=True)
    before = layer.get_weights()[0].clone()
    optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(ValueError, match="lr is nan"):
        layer(torch.randn(5, 8)).sum().backward()
    assert torch.equal(layer.get_weights()[0], before)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()  # the gradient is still there
    assert counter(layer, "update_samples") == 5


def test_copies_and_dead_optimizers() -> None:
    model = model_of("linear", pl.SingleConfig())
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1, in_backward=True)
    twin = copy.deepcopy(model)
    again = pl.optim.AnalogSGD(twin.parameters(), lr=0.1)
    assert trained(model, in_backward=False, steps=0) == bits(twin)
    state = pickle.loads(pickle.dumps(optimizer.__getstate__()))  # noqa: S301 - made here
    again.__setstate__(state)
    gc.collect()
    gc.disable()
    try:
        alive = weakref.ref(optimizer)
        del optimizer
        assert alive() is None
    finally:
        gc.enable()
    model(torch.randn(5, 8)).sum().backward()  # without an optimizer, nothing is pulsed
    assert counter(model[0], "update_samples") == 0
