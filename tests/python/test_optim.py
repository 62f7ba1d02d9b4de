"""The optimisers: pulses for analog layers, torch's rule for everything else."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogLinear
from pulsora.nn.tiles import factor_pairs, tile_array
from pulsora.nn.tiles.factor_pairs import Factors, Pair
from pulsora.nn.tiles.layer_update import LayerUpdate, apply_updates
from pulsora.optim import AnalogAdam, AnalogOptimizer, AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def ideal_model() -> nn.Sequential:
    return nn.Sequential(AnalogLinear(4, 3, config=pl.IdealConfig(**PERFECT), seed=1), nn.ReLU())


def pulsed_model() -> nn.Sequential:
    return nn.Sequential(AnalogLinear(4, 3, config=pl.SingleConfig(**PERFECT), seed=1), nn.Tanh())


def backward(model: nn.Module, seed: int = 0) -> None:
    model(random(5, 4, seed=seed)).square().sum().backward()


def test_step_moves_analog_and_digital_parameters_by_lr() -> None:
    model = ideal_model()
    layer = model[0]
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    x = random(5, 4)
    weight, bias = layer.get_weights()
    y = torch.relu(x @ weight.T + bias)
    d = 2.0 * y
    backward(model)
    optimizer.step()
    torch.testing.assert_close(layer.weight, weight - 0.1 * d.T @ x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.bias.detach(), bias - 0.1 * d.sum(0), rtol=1e-5, atol=1e-5)


def test_property_37_several_backward_passes_are_one_mini_batch() -> None:
    """Two half batches and one step equal the whole batch, to the bit."""
    halves, whole = pulsed_model(), pulsed_model()
    x = random(6, 4)
    for model, parts in ((halves, x.split(3)), (whole, (x,))):
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        for part in parts:
            model(part).square().sum().backward()
        optimizer.step()
    assert torch.equal(halves[0].weight, whole[0].weight)
    counters = [next(iter(model[0].tiles)).counters for model in (halves, whole)]
    assert [c["mini_batches"] for c in counters] == [1, 1]


@pytest.mark.parametrize("bad", ["gradient", "lr"])
def test_what_is_not_finite_is_refused_before_anything_changes(bad: str) -> None:
    """Digital parameters and other analog layers too; gradients remain for another try."""
    model = nn.Sequential(AnalogLinear(4, 3), nn.LayerNorm(3), AnalogLinear(3, 2))
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    y = model[1](model[0](random(5, 4)))
    if bad == "gradient":
        y.register_hook(lambda d: d * torch.inf)
    else:
        optimizer.param_groups[0]["lr"] = torch.inf
    model[2](y).square().sum().backward()
    reads = [name for name in before if "values" in name]  # counters of reads have moved
    with pytest.raises(ValueError, match=r"d\[.*\] is -?nan|lr is inf; it must be a finite"):
        optimizer.step()
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if name not in reads)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("most", [0, 30, 10**6])
def test_property_37_pairs_are_joined_without_a_change_of_bits(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of different lengths, with and without a gate, against the same calls of the tile."""
    monkeypatch.setattr(factor_pairs, "_MOST_CONCATENATED", most)
    config = pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(), transfer_every=5)
    arrays = [tile_array.TileArray(3, 4, config, seed=1, threads=1) for _ in range(2)]
    gate = random(3, 2, seed=9)
    gates = [None, None, gate, gate, None]
    pairs = [
        Pair.of(random(3, 4, seed=i), 0.1 * random(3, 3, seed=10 + i), given)
        for i, given in enumerate(gates)
    ]
    factors = Factors(tuple(pairs))
    apply_updates([LayerUpdate(arrays[0], 0.1, arrays[0].prepared(pairs), factors)])
    assert factors.pairs == ()
    (tile,) = arrays[1]
    assert tile.adapter is not None
    for x, d, _, given in pairs:
        if given is None:
            tile.update(x, d, 0.1, end_of_batch=False)
        else:
            tile.adapter.update(x, d, given, 0.1, end_of_batch=False)
    tile.end_batch(0.1)
    ours, theirs = (array.state_tensors() for array in arrays)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert tile.counters["update_samples"] == 15


def test_step_uses_up_and_zero_grad_throws_away() -> None:
    model = pulsed_model()
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before = model[0].weight
    backward(model)
    optimizer.zero_grad()
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    backward(model)
    optimizer.step()
    moved = model[0].weight
    assert not torch.equal(moved, before)
    optimizer.step()
    assert torch.equal(model[0].weight, moved)


def test_frozen_layers_keep_their_weights() -> None:
    model = pulsed_model()
    model[0].analog_weight.requires_grad_(requires_grad=False)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before, bias = model[0].weight, model[0].bias.detach().clone()
    backward(model)
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[0].bias, bias)


def test_evaluation_leaves_nothing_behind() -> None:
    model = pulsed_model()
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before = model[0].weight
    with torch.no_grad():
        model(random(5, 4))
    optimizer.step()
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda p: AnalogSGD(p, lr=0.1, momentum=0.9), "momentum=0.9"),
        (lambda p: AnalogSGD(p, lr=0.1, weight_decay=1e-3), "weight_decay=0.001"),
        (
            lambda p: AnalogAdam(p, lr=0.1, analog_lr=0.1, betas=(0.5, 0.9)),
            r"ignore betas=\(0.5, 0.9\): pulses",
        ),
        (
            lambda p: AnalogOptimizer(
                torch.optim.AdamW,
                [{**group, "analog_lr": 0.1, "weight_decay": 0.1} for group in p],
                lr=0.1,
            ),
            r"ignore weight_decay=0.1: pulses",
        ),
    ],
)
def test_settings_that_do_not_act_on_tiles_are_named_once(
    make: Callable[[Any], torch.optim.Optimizer], named: str
) -> None:
    model = nn.Sequential(ideal_model(), nn.Linear(3, 2))
    with pytest.warns(UserWarning, match=named) as caught:
        optimizer = make(
            [{"params": list(model[0].parameters())}, {"params": list(model[1].parameters())}]
        )
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward(model)
        optimizer.step()


def test_defaults_and_purely_digital_groups_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnalogSGD(ideal_model().parameters(), lr=0.1)
        for optimizer in (torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop):
            AnalogOptimizer(optimizer, ideal_model().parameters(), lr=0.1, analog_lr=0.1)
        AnalogSGD(nn.Linear(3, 2).parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def test_digital_parameters_follow_the_wrapped_optimiser() -> None:
    def trained(make: Callable[[Any], torch.optim.Optimizer]) -> torch.Tensor:
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        optimizer = make(layer.parameters())
        for seed in range(3):
            optimizer.zero_grad()
            backward(layer, seed)
            optimizer.step()
        return layer.weight.detach()

    ours = trained(lambda p: AnalogOptimizer(torch.optim.AdamW, p, lr=0.01, weight_decay=0.1))
    assert torch.equal(ours, trained(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)))
    ours = trained(lambda p: AnalogSGD(p, lr=0.01, momentum=0.9))
    assert torch.equal(ours, trained(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)))


def test_schedulers_act_on_tiles() -> None:
    model = ideal_model()
    optimizer = AnalogSGD(model.parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    steps = []
    start = model[0].weight
    for _ in range(2):
        model[0].set_weights(start, torch.zeros(3))
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        scheduler.step()
        steps.append(model[0].weight - start)
    torch.testing.assert_close(steps[1], 0.5 * steps[0], rtol=1e-4, atol=1e-6)


def test_closures_and_optimiser_states_work() -> None:
    model = ideal_model()
    optimizer = AnalogSGD(model.parameters(), lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(random(5, 4)).square().sum()
        loss.backward()
        return loss.item()

    first = optimizer.step(closure)
    second = optimizer.step(closure)
    assert first is not None
    assert second is not None
    assert second < first
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    ("optimizer", "error", "message"),
    [
        (torch.optim.LBFGS, ValueError, "optimizer = LBFGS needs the gradient as one vector"),
        (type("Own", (torch.optim.LBFGS,), {}), ValueError, "as one vector"),
        (type("NoRate", (torch.optim.Optimizer,), {}), ValueError, "NoRate has no lr"),
        (torch.optim.lr_scheduler.StepLR, TypeError, r"give a class of torch\.optim"),
        ("AdamW", TypeError, "optimizer = 'AdamW'"),
    ],
)
def test_optimisers_that_cannot_work_are_refused_when_made(
    optimizer: type[torch.optim.Optimizer], error: type[Exception], message: str
) -> None:
    settings: dict[str, Any] = {"defaults": {}} if "NoRate" in str(optimizer) else {}
    with pytest.raises(error, match=message):
        AnalogOptimizer(optimizer, ideal_model().parameters(), **settings)


def test_the_digital_optimiser_sees_no_analog_gradient() -> None:
    model = nn.Sequential(ideal_model(), nn.Linear(3, 2))
    optimizer = AnalogOptimizer(torch.optim.Adam, model.parameters(), lr=0.1, analog_lr=0.1)
    backward(model)
    optimizer.step()
    assert model[0][0].analog_weight not in optimizer.state
    assert len(optimizer.state) == 3  # the bias of the analog layer, weight and bias of the digital


def test_hooks_of_a_step_run_once() -> None:
    torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    optimizer = AnalogSGD(ideal_model().parameters(), lr=0.1)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.step()
    assert calls == [1]
