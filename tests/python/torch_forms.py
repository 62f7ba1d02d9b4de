"""Models and ways of training that `test_torch_forms.py` compares with torch's own layers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.optim import lr_scheduler

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    # Makes the optimiser of parameters: SGD, or AnalogSGD.
    Make = Callable[..., torch.optim.Optimizer]
    # Trains a model with optimisers that it makes.
    Train = Callable[[nn.Module, Make], object]

LR = 0.1


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, step: int = 0, x: Tensor | None = None) -> Tensor:
    y: Tensor = model(noise(6, 4, seed=step) if x is None else x)
    return (y - noise(*y.shape, seed=100 + step)).square().mean()


# Models


def mlp(activation: nn.Module | None = None) -> nn.Sequential:
    middle = nn.Tanh() if activation is None else activation
    return nn.Sequential(nn.Linear(4, 6), middle, nn.Linear(6, 5), middle, nn.Linear(5, 3))


class Recurrent(nn.Module):
    """A recurrent layer whose outputs alone are used; with `lengths` its input is packed."""

    def __init__(self, layer: nn.RNNBase, lengths: list[int] | None = None) -> None:
        super().__init__()
        self.layer, self.lengths = layer, lengths

    def forward(self, x: Tensor) -> Tensor:
        if self.lengths is None:
            y: Tensor = self.layer(x)[0]
            return y
        packed = pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0])[0]


class Unrolled(nn.Module):
    """A cell of one linear layer, which is used once for each step of a sequence [steps, n]."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.cell, self.steps = nn.Linear(4, 4), steps

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = torch.tanh(self.cell(x))
        return x


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


# Ways of training: each gets a model and a maker of optimisers


def plain(*shape: int, steps: int = 3, lr: float = LR, last: bool = False) -> Train:
    """The usual loop on inputs of a shape; `last`: with channels last in memory."""

    def train(model: nn.Module, make: Make) -> None:
        optimizer = make(model.parameters(), lr=lr)
        for step in range(steps):
            x = noise(*(shape or (6, 4)), seed=step)
            x = x.to(memory_format=torch.channels_last) if last else x
            optimizer.zero_grad()
            loss_of(model, step, x).backward()
            optimizer.step()

    return train


def changed(between: Callable[[nn.Module, torch.optim.Optimizer], object], **options: Any) -> Train:
    """The usual loop, with something between `backward()` and `step()`; the return values count."""

    def train(model: nn.Module, make: Make) -> list[object]:
        optimizer, seen = make(model.parameters(), lr=LR, **options), []
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            seen.append(between(model, optimizer))
            optimizer.step()
        return seen

    return train


def steps_of(backward: Callable[[nn.Module, int], object], *, to_none: bool = True) -> Train:
    """A loop with backward passes of another kind; the return values count."""

    def train(model: nn.Module, make: Make) -> list[object]:
        optimizer, seen = make(model.parameters(), lr=LR), []
        for step in range(3):
            optimizer.zero_grad(set_to_none=to_none)
            seen.append(backward(model, step))
            optimizer.step()
        return seen

    return train


def warm_up(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.StepLR(optimizer, 2)], [3])


def scheduled(scheduler: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]) -> Train:
    def train(model: nn.Module, make: Make) -> list[float]:
        optimizer, rates = make(model.parameters(), lr=LR), []
        schedule = scheduler(optimizer)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
            schedule.step()
            rates += schedule.get_last_lr()
        return rates

    return train


def truncated(model: nn.Module, make: Make) -> None:
    """Backpropagation through time over pieces of 3 steps; the state goes on without gradient."""
    optimizer, state = make(model.parameters(), lr=LR), None
    for step, piece in enumerate(noise(9, 2, 4).split(3)):
        optimizer.zero_grad()
        y, state = model.layer(piece, state)  # type: ignore[operator]
        (y - noise(*y.shape, seed=step)).square().mean().backward()
        optimizer.step()
        state = tuple(part.detach() for part in state)


def loss_backward(model: nn.Module, step: int) -> None:
    loss_of(model, step).backward()


def accumulate(model: nn.Module, step: int) -> None:
    for part in range(3):
        (loss_of(model, 10 * step + part) / 3).backward()


def forwards_first(model: nn.Module, step: int) -> None:
    torch.stack([loss_of(model, 10 * step + part) for part in range(3)]).sum().backward()


def two_losses(model: nn.Module, step: int) -> None:
    y = model(noise(6, 4, seed=step))
    y.square().mean().backward(retain_graph=True)
    y.sin().mean().backward()


def fgsm(model: nn.Module, step: int) -> Tensor:
    """Trains on inputs that were moved along the sign of their gradient."""
    x = noise(6, 4, seed=step).requires_grad_()
    (slope,) = torch.autograd.grad(loss_of(model, step, x), x)
    loss_of(model, step, (x + 0.1 * slope.sign()).detach()).backward()
    return slope


def some_inputs(model: nn.Module, step: int) -> None:
    loss_of(model, step).backward(inputs=list(model[2:].parameters()))  # type: ignore[index]


def frozen_with_input_gradients(model: nn.Module, step: int) -> Tensor | None:
    model[2].requires_grad_(requires_grad=False)  # type: ignore[index]
    x = noise(6, 4, seed=step).requires_grad_()
    loss_of(model, step, x).backward()
    return x.grad


def frozen_midway(model: nn.Module, step: int) -> None:
    model[0].requires_grad_(step != 1)  # type: ignore[index]
    loss_of(model, step).backward()


def hooked(model: nn.Module, step: int) -> None:
    """Hooks of parameters and of an activation scale the gradients."""
    hooks = [p.register_hook(lambda g: 0.5 * g) for p in model.parameters()]
    x = model[0](noise(6, 4, seed=step))  # type: ignore[index]
    x.register_hook(lambda g: g.clamp(-0.02, 0.02))
    loss_of(model[1:], step, x).backward()  # type: ignore[index]
    for hook in hooks:
        hook.remove()


def full_hooks(model: nn.Module, step: int) -> None:
    """Full backward hooks of modules change the gradients of their inputs."""
    modules = list(model.children())[1:]
    hooks = [m.register_full_backward_hook(lambda _, g, __: (2.0 * g[0],)) for m in modules]
    loss_of(model, step).backward()
    for hook in hooks:
        hook.remove()


def in_threads(model: nn.Module, step: int) -> None:
    losses = [loss_of(model, 10 * step + part) for part in range(4)]
    threads = [threading.Thread(target=loss.backward) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def mean_of_gradients(model: nn.Module, step: int) -> None:
    """`p.grad = (g1 + g2) / 2` for each parameter."""
    kept = []
    for part in range(2):
        loss_of(model, 10 * step + part).backward()
        kept.append([p.grad for p in model.parameters()])
        model.zero_grad()
    for p, first, second in zip(model.parameters(), *kept, strict=True):
        p.grad = (first + second) / 2  # type: ignore[operator]


def scaled_in_place(model: nn.Module, _: object) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.grad.mul_(0.3)


def anomaly(model: nn.Module, step: int) -> None:
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        loss_of(model, step).backward()


def on_cpu(model: nn.Module, step: int) -> None:
    with torch.autograd.graph.save_on_cpu():
        loss = loss_of(model, step)
    loss.backward()


def checkpointed(model: nn.Module, step: int) -> None:
    x = noise(6, 4, seed=step)
    part = torch.utils.checkpoint.checkpoint(
        model[:3],  # type: ignore[index]
        x,
        use_reentrant=False,
        context_fn=pl.nn.replayed_reads,
    )
    loss_of(model[3:], step, part).backward()  # type: ignore[index]


def clip(norm_type: float, *, foreach: bool | None = None) -> Train:
    return changed(
        lambda model, _: nn.utils.clip_grad_norm_(
            model.parameters(), 0.1, norm_type, foreach=foreach
        )
    )


def grad_scaler(model: nn.Module, make: Make) -> None:
    optimizer = make(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def own_rates(model: nn.Module, make: Make) -> None:
    groups = [
        {"params": model[index].parameters(), "lr": rate}  # type: ignore[index]
        for index, rate in ((0, 0.3), (2, 0.05), (4, 0.1))
    ]
    optimizer = make(groups, lr=LR)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def two_optimizers(model: nn.Module, make: Make) -> None:
    first, second = model[:2], model[2:]  # type: ignore[index]
    both = [make(first.parameters(), lr=0.2), make(second.parameters(), lr=LR)]
    for step in range(3):
        for optimizer in both:
            optimizer.zero_grad()
        loss_of(model, step).backward()
        for optimizer in both:
            optimizer.step()


def in_backward(model: nn.Module, make: Make) -> None:
    """Every parameter has an optimiser of its own, which steps as soon as its gradient is there."""
    optimizers = {p: make([p], lr=LR) for p in model.parameters()}

    def step_of(p: Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    hooks = [p.register_post_accumulate_grad_hook(step_of) for p in model.parameters()]
    for step in range(3):
        loss_of(model, step).backward()
    for hook in hooks:
        hook.remove()


def closure(model: nn.Module, make: Make) -> None:
    optimizer = make(model.parameters(), lr=LR)
    for step in range(3):

        def loss(step: int = step) -> float:
            optimizer.zero_grad()
            value = loss_of(model, step)
            value.backward()
            return value.item()

        optimizer.step(loss)


def compiled(backend: str) -> Train:
    def train(model: nn.Module, make: Make) -> None:
        torch._dynamo.reset()
        plain()(torch.compile(model, backend=backend), make)  # type: ignore[arg-type]

    return train
