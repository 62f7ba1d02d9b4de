"""Gradients of analog layers keep torch's conventions: recorded, summed, scaled and dropped."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogGradient, AnalogLinear, AnalogParameter
from pulsora.optim import AnalogOptimizer, AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig(**PERFECT)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def twins(config: pl.TileConfig = IDEAL, **options: Any) -> tuple[nn.Module, nn.Module]:
    """An analog model and torch's, of equal weights."""
    torch.manual_seed(0)
    analog = nn.Sequential(
        AnalogLinear(4, 6, config=config, seed=1, **options),
        nn.Tanh(),
        nn.Linear(6, 5),
        nn.Tanh(),
        AnalogLinear(5, 3, config=config, seed=2, **options),
    )
    return analog, pl.convert_to_digital(analog)


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [model[index].weight.detach().clone() for index in (0, 2, 4)]  # type: ignore[index]


def backward(model: nn.Module, seed: int = 0, scale: float = 1.0) -> None:
    (scale * model(random(7, 4, seed=seed)).square().sum()).backward()


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))


def close(first: nn.Module, second: nn.Module) -> None:
    for a, b in zip(weights(first), weights(second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def analog_parameter(model: nn.Module) -> AnalogParameter:
    return next(p for p in model.parameters() if isinstance(p, AnalogParameter))


# What is recorded, and when


def test_a_gradient_reads_as_the_one_of_torch() -> None:
    analog, digital = twins(max_input_size=2)
    for model in (analog, digital):
        backward(model, 1)
        backward(model, 2)
    ours, theirs = analog_parameter(analog).grad, digital[0].weight.grad
    assert isinstance(ours, AnalogGradient)
    torch.testing.assert_close(ours.dense(), theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.norm(), theirs.norm(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.abs().max(), theirs.abs().max(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_autograd_grad_records_nothing() -> None:
    model, _ = twins()
    x = random(7, 4).requires_grad_()
    (dx,) = torch.autograd.grad(model(x).sum(), x)
    assert dx.shape == x.shape
    assert analog_parameter(model).grad is None
    backward(model)
    before = analog_parameter(model).grad.dense()
    torch.autograd.grad(model(x).sum(), x)
    assert torch.equal(analog_parameter(model).grad.dense(), before)


def test_autograd_grad_gives_the_gradient_of_the_weights() -> None:
    analog, digital = twins()
    x = random(7, 4)
    (ours,) = torch.autograd.grad(analog(x).sum(), analog_parameter(analog))
    (theirs,) = torch.autograd.grad(digital(x).sum(), digital[0].weight)
    torch.testing.assert_close(ours.dense(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("of", ["model", "optimiser"])
def test_zero_grad_discards(of: str, set_to_none: bool) -> None:
    model, _ = twins(pl.SingleConfig(**PERFECT))
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before = weights(model)
    backward(model)
    {"model": model, "optimiser": optimizer}[of].zero_grad(set_to_none)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    counters = next(iter(model[0].tiles)).counters  # type: ignore[index]
    assert (counters["update_samples"], counters["mini_batches"]) == (0, 0)


def test_hooks_may_scale_a_gradient_and_not_replace_it() -> None:
    analog, digital = twins()
    hooks = [
        p.register_hook(lambda g: 0.5 * g) for p in (analog_parameter(analog), digital[0].weight)
    ]
    for model, make in ((analog, AnalogSGD), (digital, torch.optim.SGD)):
        backward(model)
        make(model.parameters(), lr=0.1).step()
    close(analog, digital)
    hooks[0].remove()
    analog_parameter(analog).register_hook(lambda g: g.sign())
    backward(analog)
    with pytest.raises(RuntimeError, match="has been replaced by another tensor"):
        AnalogSGD(analog.parameters(), lr=0.1).step()


def test_inputs_that_change_before_the_step_are_those_of_the_forward_pass() -> None:
    """Through NumPy, `.data` and in place; and a gradient in memory of NumPy."""
    batches = [random(2, 4, seed=i) for i in range(3)]
    memory, back = np.empty((2, 4), np.float32), np.ones((2, 3), np.float32)
    layers = [AnalogLinear(4, 3, config=pl.IdealConfig(), seed=1), torch.nn.Linear(4, 3)]
    assert layers[0].bias is not None
    with torch.no_grad():
        layers[1].weight.copy_(layers[0].weight)
        layers[1].bias.copy_(layers[0].bias)
    for layer, make in zip(layers, (AnalogSGD, torch.optim.SGD), strict=True):
        optimizer = make(layer.parameters(), lr=0.1)
        for batch in batches:  # accumulated over one buffer
            memory[:] = batch.numpy()
            back[:] = 1.0
            layer(torch.from_numpy(memory)).backward(torch.from_numpy(back))
            back[:] = 7.0
        attacked = batches[0].clone().requires_grad_()
        layer(attacked).square().sum().backward()
        assert attacked.grad is not None
        attacked.data.add_(0.3 * attacked.grad.sign())
        changed = batches[1].clone()
        layer(changed[:1]).sum().backward()
        changed.copy_(batches[2])
        optimizer.step()
    # Torch itself makes the gradient of its weight in the backward pass.
    assert torch.allclose(layers[0].weight, layers[1].weight, atol=1e-6)


def test_results_that_change_before_the_step_are_refused() -> None:
    layer = AnalogLinear(4, 3, seed=1)
    optimizer = AnalogSGD(layer.parameters(), lr=0.1)
    x = random(2, 4).requires_grad_() * 2.0
    layer(x).sum().backward()
    before = layer.weight
    with torch.no_grad():
        x.copy_(random(2, 4, seed=1))
    with pytest.raises(RuntimeError, match="changed in place after the backward pass"):
        optimizer.step()
    assert torch.equal(layer.weight, before)


# Gradients that nobody takes


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimiser_of_torch_is_refused(make: Callable[..., torch.optim.Optimizer]) -> None:
    layer = AnalogLinear(4, 3, seed=1)
    layer(random(2, 4)).sum().backward()
    with pytest.raises(RuntimeError, match=r"Train them by an optimiser of pulsora\.optim"):
        make([layer.analog_weight], lr=0.1).step()


def test_passes_that_no_optimiser_takes_are_bounded_and_never_applied() -> None:
    model, _ = twins()
    parameter = analog_parameter(model)
    optimizer = AnalogSGD(list(model[2:].parameters()), lr=0.1)  # type: ignore[index]

    def step(seed: int) -> None:
        optimizer.zero_grad()
        backward(model, seed)
        optimizer.step()

    for seed in range(8):
        step(seed)
    with pytest.warns(UserWarning, match=r"which no optimiser of pulsora\.optim has taken up"):
        step(8)
    for seed in range(20):
        step(seed)  # without another warning
    assert parameter.grad.factors.pairs is None
    late = AnalogSGD(model.parameters(), lr=0.1)
    before = weights(model)
    with pytest.raises(RuntimeError, match="more than 8 backward passes"):
        late.step()
    assert torch.equal(weights(model)[0], before[0])
    late.zero_grad()
    backward(model)
    late.step()
    assert not torch.equal(weights(model)[0], before[0])


def test_an_optimiser_takes_any_number_of_micro_batches() -> None:
    whole, parts = (twins(pl.SingleConfig(**PERFECT))[0] for _ in range(2))
    x = random(60, 4)
    for model, batches in ((whole, [x]), (parts, x.split(2))):
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        for batch in batches:
            model(batch).square().sum().backward()
        optimizer.step()
    assert torch.equal(weights(whole)[0], weights(parts)[0])
    assert torch.equal(weights(whole)[2], weights(parts)[2])


def test_a_copied_optimiser_goes_on_taking_micro_batches() -> None:
    model, _ = twins()
    model, optimizer = copy.deepcopy((model, AnalogSGD(model.parameters(), lr=0.1)))
    before = weights(model)
    for seed in range(20):
        backward(model, seed)
    optimizer.step()
    assert not torch.equal(weights(model)[0], before[0])


# Scaling: clipping, GradScaler, maximize


def test_clipping_that_does_not_bind_leaves_every_bit() -> None:
    clipped, plain = (twins(pl.SingleConfig(), max_input_size=3)[0] for _ in range(2))
    for model in (clipped, plain):
        backward(model)
        if model is clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        AnalogSGD(model.parameters(), lr=0.1).step()
    assert same(clipped, plain)


def test_clipping_by_value_is_refused() -> None:
    layer = AnalogLinear(4, 3, bias=False)
    layer(random(2, 4)).sum().backward()
    with pytest.raises(RuntimeError, match="clip_grad_norm_ instead of clip_grad_value_"):
        nn.utils.clip_grad_value_(layer.parameters(), 0.1)


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler_leaves_the_bits_of_unscaled_training(fused: bool, unscales: bool) -> None:
    scaled, plain = (twins(pl.SingleConfig())[0] for _ in range(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for model in (scaled, plain):
        optimizer = AnalogOptimizer(torch.optim.SGD, model.parameters(), lr=0.1, fused=fused)
        for step in range(3):
            optimizer.zero_grad()
            for part in range(2):  # two micro-batches
                backward(model, 10 * step + part, scaler.get_scale() if model is scaled else 1.0)
            if model is plain:
                optimizer.step()
                continue
            scaler.scale(torch.zeros(()))
            if unscales:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert same(scaled, plain)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_grad_scaler_skips_a_step_of_gradients_that_are_not_finite(bad: float, fused: bool) -> None:
    model = nn.Sequential(AnalogLinear(4, 3, bias=False, config=IDEAL), AnalogLinear(3, 2, seed=1))
    model[1].requires_grad_(requires_grad=False)  # only pairs (x, d) can tell
    optimizer = AnalogOptimizer(torch.optim.SGD, model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = model[0].weight
    y = model[0](random(2, 4))
    scaler.scale(y.sum()).backward(torch.tensor(bad))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(model[0](random(2, 4)).sum()).backward()
    scaler.step(optimizer)
    assert not torch.equal(model[0].weight, before)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_maximize_ascends_by_pulses_without_a_warning(
    make: type[torch.optim.Optimizer],
) -> None:
    model = nn.Sequential(AnalogLinear(4, 3, config=pl.SingleConfig(**PERFECT), seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = AnalogOptimizer(
            make, model.parameters(), lr=0.01, analog_lr=0.01, maximize=True
        )
    values = []
    for _ in range(5):
        optimizer.zero_grad()
        value = model(torch.ones(2, 4)).sum()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values == sorted(values)
    moved = model[0].weight - AnalogLinear(4, 3, config=model[0].config, seed=1).weight
    assert moved.mean() > 0.01


def test_gradients_that_tiles_have_read_are_not_scaled_afterwards() -> None:
    config = pl.LRTTConfig(rank=2, projection="reuse", forward_inject=True)
    layer = AnalogLinear(4, 3, config=config, seed=1)
    optimizer = AnalogSGD(layer.parameters(), lr=0.1)
    layer(random(2, 4)).sum().backward()
    with pytest.raises(RuntimeError, match="projection = 'reuse' cannot be scaled"):
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()
    assert next(iter(layer.tiles)).counters["update_samples"] == 2


def test_a_loaded_state_discards_gradients_of_the_weights_before() -> None:
    layer = AnalogLinear(4, 3, seed=1)
    layer(random(2, 4)).sum().backward()
    layer.load_state_dict(layer.state_dict())
    assert layer.analog_weight.grad is None
