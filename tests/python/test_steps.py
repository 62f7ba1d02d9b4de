"""Steps of optimisers are made as a whole, or can be taken up."""

from __future__ import annotations

import copy
import gc
import signal
import warnings
from typing import TYPE_CHECKING, NoReturn

import pytest
import torch

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.nn.autograd import analog_parameter
from pulsora.nn.tiles import layer_update

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ADAPTER = pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(), transfer_every=2)


class Interrupt(Exception):  # noqa: N818 - no error
    """Stands for KeyboardInterrupt, which would end the tests."""


def network() -> torch.nn.Sequential:
    """Layers of several tiles, of one tile, with an adapter, and digital parameters."""
    return torch.nn.Sequential(
        AnalogLinear(40, 30, config=pl.SingleConfig(), max_input_size=10, seed=1),
        torch.nn.Tanh(),
        AnalogLinear(30, 20, config=ADAPTER, seed=2),
        torch.nn.Tanh(),
        AnalogLinear(20, 3, config=pl.SingleConfig(device=pl.devices.SoftBounds()), seed=3),
    )


def prepared() -> tuple[torch.nn.Sequential, pl.optim.AnalogSGD]:
    """A network with gradients of 600 samples, and an optimiser."""
    model = network()
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    model(torch.randn(600, 40, generator=generator)).square().mean().backward()
    return model, optimizer


def same_states(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_step_that_a_signal_interrupts_is_made_whole_by_the_next() -> None:
    whole, optimizer = prepared()
    optimizer.step()

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise Interrupt

    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for attempt in range(60):
            model, optimizer = prepared()
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 * 1.13**attempt)
                optimizer.step()
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except Interrupt:
                interrupted += 1
                # A signal at the end of torch's own step leaves gradients switched off.
                torch.set_grad_enabled(True)
                if not all(torch.equal(mine, other) for mine, other in biases(model, whole)):
                    # Torch's own step may be half done.
                    for bias, initial in biases(model, network()):
                        bias.data.copy_(initial)
                    optimizer.step()
            for layer, other in zip(tiled(model), tiled(whole), strict=True):
                for tile, same in zip(layer.tiles, other.tiles, strict=True):
                    assert tile.counters == same.counters
            assert same_states(model, whole)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 0


def tiled(model: torch.nn.Module) -> list[AnalogLinear]:
    return [layer for layer in model.modules() if isinstance(layer, AnalogLinear)]


def biases(
    one: torch.nn.Module, other: torch.nn.Module
) -> list[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
    pairs = []
    for layer, same in zip(tiled(one), tiled(other), strict=True):
        assert layer.bias is not None
        assert same.bias is not None
        pairs.append((layer.bias, same.bias))
    return pairs


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_step_that_fails_is_taken_up_where_it_ended(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, optimizer = prepared()
    optimizer.step()
    model, optimizer = prepared()
    calls = 0
    apply = layer_update._core.apply_updates

    def fail_at(updates: list[object], ask_only: bool = False) -> None:
        nonlocal calls
        for update in updates:
            if calls == failing:
                calls += 1
                raise MemoryError
            calls += 1
            apply([update], ask_only)

    monkeypatch.setattr(layer_update._core, "apply_updates", fail_at)
    with pytest.raises(MemoryError):
        optimizer.step()
    left = [layer.analog_weight.grad is not None for layer in tiled(model)]
    assert left[failing:] == [True] * (3 - failing)
    optimizer.step()
    assert same_states(model, whole)


def test_every_layer_is_asked_before_one_changes() -> None:
    refusing = pl.LRTTConfig(rank=2, reinit="svd", transfer_every=3)
    model = torch.nn.Sequential(
        AnalogLinear(5, 4, config=pl.SingleConfig()), AnalogLinear(4, 3, config=refusing)
    )
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    model(torch.randn(6, 5)).square().mean().backward()
    before = copy.deepcopy(model)
    for _ in range(2):
        with pytest.raises(pl.ConfigError, match="no vectors were handed in"):
            optimizer.step()
    assert same_states(model, before)
    assert all(parameter.grad is not None for parameter in model.parameters())


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "mul_": lambda g: g.mul_(0.1),
    "div_": lambda g: g.div_(4),
    "in place": lambda g: g.__imul__(0.5),
    "zero_": lambda g: g.zero_(),
    "add_ of itself": lambda g: g.add_(g),
    "copy_": lambda g: g.copy_(g * 0.25),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("view", ["data", "detach"])
def test_views_of_a_gradient_share_its_factors(name: str, view: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 5)
    analog = AnalogLinear(5, 4, config=pl.IdealConfig())
    digital = torch.nn.Linear(5, 4)
    with torch.no_grad():
        digital.weight.copy_(analog.get_weights()[0])
        digital.bias.copy_(analog.bias)
    for layer, kind in ((digital, torch.optim.SGD), (analog, pl.optim.AnalogSGD)):
        optimizer = kind(layer.parameters(), lr=0.3)
        layer(x).square().sum().backward()
        for parameter in layer.parameters():
            gradient = parameter.grad
            WRITES[name](gradient.data if view == "data" else gradient.detach())
        optimizer.step()
    assert torch.allclose(analog.get_weights()[0], digital.weight, atol=1e-6)


def test_factors_are_not_sent_to_other_processes_by_all_reduce(tmp_path: Path) -> None:
    layer = AnalogLinear(5, 4, config=pl.IdealConfig())
    layer(torch.randn(8, 5)).square().sum().backward()
    gradient = layer.analog_weight.grad
    assert gradient is not None
    before = gradient.numpy()
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        for sent in (gradient, gradient.data):
            with pytest.raises(RuntimeError, match=r"no memory to send.*distributed\.prepare"):
                torch.distributed.all_reduce(sent)
    finally:
        torch.distributed.destroy_process_group()
    assert layer.analog_weight.grad is gradient
    assert (gradient.numpy() == before).all()


def test_a_clone_of_a_gradient_has_factors_of_its_own() -> None:
    layer = AnalogLinear(5, 4, config=pl.IdealConfig())
    layer(torch.randn(8, 5)).sum().backward()
    gradient = layer.analog_weight.grad
    assert gradient is not None
    formed = gradient.numpy()
    gradient.clone().mul_(0.0)
    assert (gradient.numpy() == formed).all()


def test_gradients_of_a_layer_whose_optimiser_is_gone_end() -> None:
    body, head = AnalogLinear(6, 5, config=pl.IdealConfig()), torch.nn.Linear(5, 2)
    first = pl.optim.AnalogSGD([*body.parameters(), *head.parameters()], lr=0.1)
    del first
    gc.collect()
    second = torch.optim.SGD(head.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="which no optimiser") as told:  # noqa: PT031
        for _ in range(30):
            second.zero_grad()
            head(body(torch.randn(3, 6))).sum().backward()
            second.step()
    assert len(told) == 1
    gradient = body.analog_weight.grad
    assert gradient is not None
    assert gradient.factors.pairs is None
    optimizer = pl.optim.AnalogSGD(body.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="more than 8 backward passes"):
        optimizer.step()


def test_gradients_without_a_step_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analog_parameter, "_MANY_PASSES", 200)
    monkeypatch.setattr(analog_parameter, "_MOST_PASSES", 500)
    layer = AnalogLinear(4, 3, config=pl.IdealConfig())
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="without a step of its optimiser") as told:  # noqa: PT031
        for _ in range(600):
            layer(torch.ones(1, 4)).sum().backward()
    assert len(told) == 1
    with pytest.raises(RuntimeError, match="without a step, which are not kept"):
        optimizer.step()
    optimizer.zero_grad()
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def test_a_shared_layer_tells_the_second_optimiser_that_its_gradient_is_used() -> None:
    trunk, one, two = (AnalogLinear(4, 4, config=pl.IdealConfig()) for _ in range(3))
    actor = pl.optim.AnalogSGD([*trunk.parameters(), *one.parameters()], lr=0.1)
    critic = pl.optim.AnalogSGD([*trunk.parameters(), *two.parameters()], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for optimizer, head in ((actor, one), (critic, two)):  # a backward pass each
            optimizer.zero_grad()
            head(trunk(torch.ones(2, 4))).sum().backward()
            optimizer.step()
    (one(trunk(torch.ones(2, 4))) + two(trunk(torch.ones(2, 4)))).sum().backward()
    actor.step()
    with pytest.warns(UserWarning, match="used up by the step of another"):
        critic.step()


def test_a_layer_that_no_forward_pass_reads_is_named_once() -> None:
    used, unused = AnalogLinear(4, 3, config=pl.IdealConfig()), AnalogLinear(7, 2)
    optimizer = pl.optim.AnalogSGD([*used.parameters(), *unused.parameters()], lr=0.1)
    text = r"no forward pass has read.*layer AnalogLinear \[2, 7\]\."
    with pytest.warns(UserWarning, match=text) as told:  # noqa: PT031
        for _ in range(25):
            optimizer.zero_grad()
            used(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert len(told) == 1


def test_a_frozen_layer_is_not_named_among_layers_that_nothing_reads() -> None:
    used, unused = AnalogLinear(4, 3, config=pl.IdealConfig()), AnalogLinear(7, 2)
    frozen = AnalogLinear(5, 6)
    frozen.requires_grad_(False)  # noqa: FBT003 - torch's own
    layers = torch.nn.ModuleDict({"used": used, "frozen": frozen, "unused": unused})

    def told(model: torch.nn.Module) -> list[str]:
        optimizer = pl.optim.AnalogSGD(model.named_parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(12):
                optimizer.zero_grad()
                used(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        return [str(each.message) for each in caught]

    (text,) = told(layers)
    assert "layer 'unused' (AnalogLinear [2, 7])" in text
    assert "frozen" not in text
    del layers["unused"]
    assert told(layers) == []
