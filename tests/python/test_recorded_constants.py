"""Constants of a recorded step: random choices are some, learning rates in GPU memory are not."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.graphs import training_step
from pulsora.graphs.random_numbers import of_host
from pulsora.nn import AnalogLinear
from pulsora.nn.tiles.layer_update import apply_updates
from pulsora.optim import AnalogOptimizer, AnalogSGD
from pulsora.training_step import TrainingStep
from replayed_steps import counted, replay, require_same

if TYPE_CHECKING:
    from collections.abc import Callable

loss_fn = nn.functional.cross_entropy
CONFIG = pl.LRTTConfig(rank=2, transfer_every=3)


def made(device: str = "cpu") -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        AnalogLinear(6, 8, config=CONFIG, seed=1, device=device),
        nn.Tanh(),
        nn.Linear(8, 3, device=device),
    )


def batch(number: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(5, 6, generator=generator)
    return x.to(device), torch.randint(3, (5,), generator=generator).to(device)


DRAWS = {
    "torch": lambda: float(torch.rand(())),
    "NumPy": np.random.random,
    "Python": random.random,
    "none": lambda: 0.3,
}


@pytest.mark.parametrize("source", DRAWS)
def test_choices_by_random_numbers_of_the_host_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Layers that are left out at random, for instance, would stay as recorded."""
    replay(monkeypatch)
    monkeypatch.setattr(training_step, "random_numbers", lambda _: (0, of_host()))
    draw: Callable[[], float] = DRAWS[source]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return loss_fn(output, target) * (1.0 if draw() < 0.5 else 2.0)

    model = made()
    step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss)
    for number in range(2):
        step(*batch(number))
    if source == "none":
        step(*batch(2))
        assert step.plain_because is None
        return
    with pytest.warns(RuntimeWarning, match="random numbers of torch, NumPy or Python"):
        step(*batch(2))


def test_pulses_take_the_rates_that_were_read_before_a_record() -> None:
    """Rates in GPU memory cannot be read in a capture."""
    models = [made(), made()]
    for model, lr, read in zip(models, (0.05, 0.1), (None, 0.05), strict=True):
        optimizer = AnalogSGD(model.parameters(), lr=lr)
        x, target = batch(0)
        loss_fn(model(x), target).backward()
        analog = list(optimizer._analog())
        rates = None if read is None else {id(group): read for group in optimizer.param_groups}
        apply_updates(optimizer._updates(analog, rates))
    require_same(*models)
    assert not torch.equal(models[0][0].weight, made()[0].weight)


class Rate(torch.Tensor):
    """Stands for a learning rate in GPU memory."""

    is_cuda = True


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_rate_in_gpu_memory_is_no_constant_of_a_record(
    monkeypatch: pytest.MonkeyPatch, kind: type[torch.optim.Optimizer]
) -> None:
    """Adam takes it from there in the graph; SGD reads it, so its step stays outside."""
    replayed = replay(monkeypatch)
    model = made()
    optimizer: Any = AnalogOptimizer(kind, model.parameters(), lr=0.1, analog_lr=0.1)
    lr = torch.tensor(0.1).as_subclass(Rate)
    optimizer.param_groups[0]["lr"] = lr
    if kind is torch.optim.Adam:
        for group in optimizer.param_groups:
            group["capturable"] = True
        # Adam's own step needs a GPU; it would leave a state.
        state = functools.partial(optimizer.state.setdefault, next(model.parameters()), {})
        monkeypatch.setattr(optimizer, "_step_digitally", state)
    step = TrainingStep(model, optimizer, loss_fn)
    for number in range(8):
        step(*batch(number))
        lr.mul_(0.9)
    assert replayed.made == [kind is torch.optim.Adam]
    assert step.plain_because is None


@pytest.mark.skipif(
    not torch.cuda.is_available() or pl.cuda_device_count() == 0,
    reason="no GPU that torch and this build of Pulsora can use",
)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("analog_lr", [0.1, None])
@pytest.mark.filterwarnings("ignore:analog layers:UserWarning")
def test_property_37_a_rate_in_gpu_memory_changes_without_a_record(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[torch.optim.Optimizer],
    analog_lr: float | None,
) -> None:
    models = [made("cuda") for _ in range(2)]
    settings = {"capturable": True} if kind is torch.optim.AdamW else {}
    optimizers = [
        AnalogOptimizer(
            kind,
            model.parameters(),
            lr=torch.tensor(0.01, device="cuda"),
            analog_lr=analog_lr,
            **settings,
        )
        for model in models
    ]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    records = counted(monkeypatch)
    step = TrainingStep(models[0], optimizers[0], loss_fn)
    for number in range(12):
        x, target = batch(number, "cuda")
        optimizers[1].zero_grad()
        loss = loss_fn(models[1](x), target)
        loss.backward()
        optimizers[1].step()
        assert torch.equal(step(x, target), loss.detach()), number
        for schedule in schedules:
            schedule.step()
    assert step.plain_because is None
    assert records == [kind is torch.optim.AdamW]
    require_same(*models)
