"""Gates: weights of the components of low-rank adapters, for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from pulsora._internal.checks import require_at_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["ConstantGate", "Gate", "LearnedGate", "MixtureGate", "TaskGate", "select_task"]


class Gate(nn.Module):
    """Base class of the gates of Pulsora, which weight the components of a `GatedAdapter`.

    A custom gate is any module whose forward takes x [..., in_features] and returns a tensor that
    broadcasts to [..., n], where n is 1 (one weight for all), the number of adapters in the pool,
    or the number of components. Gradients flow into it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns the weights for x [..., in_features]."""
        raise NotImplementedError


class ConstantGate(Gate):
    """A gate with constant weights: equal for every sample, and not trained.

    Args:
        weights: One number for all, one for each adapter of the pool, or one for each component.

    Raises:
        ValueError: if the weights are not a number or a row of finite numbers.
    """

    weights: Tensor

    def __init__(self, weights: float | Sequence[float] | Tensor) -> None:
        super().__init__()
        values = torch.as_tensor(weights, dtype=torch.float32).detach().clone().reshape(-1)
        if torch.as_tensor(weights).ndim > 1 or not len(values) or not values.isfinite().all():
            raise ValueError(f"weights = {weights!r}: give a number, or a row of finite numbers")
        self.register_buffer("weights", values)

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002 - gates are called with x
        """Returns the weights [1], [adapters] or [components]."""
        return self.weights

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(gate)`."""
        return ", ".join(f"{value:g}" for value in self.weights.tolist())


class TaskGate(Gate):
    """A gate that selects one adapter of the pool by the index of a task.

    `select(task)`, or `pulsora.nn.select_task(model, task)` for all such gates of a model, sets the
    task: one number for all inputs, or numbers [batch], one for each entry of the first
    dimension of x (a sequence, an image) with all its rows.

    Args:
        tasks: Number of tasks, which is the number of adapters in the pool.

    Raises:
        ValueError: for less than one task.
    """

    task: Tensor

    def __init__(self, tasks: int) -> None:
        super().__init__()
        require_at_least("tasks", tasks, 1)
        self.tasks = int(tasks)
        self.register_buffer("task", torch.zeros((), dtype=torch.long), persistent=False)

    def select(self, task: int | Tensor) -> None:
        """Sets the task for the next calls.

        Raises:
            TypeError: for anything but whole numbers.
            ValueError: for a task that does not exist, or more dimensions than one.
        """
        chosen = torch.as_tensor(task)
        if chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool:
            raise TypeError(f"task = {task!r}: give whole numbers")
        if chosen.ndim > 1:
            raise ValueError(
                f"task has shape {list(chosen.shape)}: give one number, or one for each entry of "
                "the batch"
            )
        if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < self.tasks:
            raise ValueError(f"task = {task!r}: tasks are numbered from 0 to {self.tasks - 1}")
        if chosen.shape == self.task.shape:  # the memory stays, so that recorded steps go on
            self.task.copy_(chosen)
        else:  # a copy, because the caller may write to the tensor later
            self.task = chosen.to(self.task.device, torch.long, copy=True)

    def forward(self, x: Tensor) -> Tensor:
        """Returns 1 for the task's adapter, else 0: [adapters] or [batch, 1, ..., adapters]."""
        if self.task.ndim and (x.ndim < 2 or len(self.task) != len(x)):
            raise ValueError(
                f"{len(self.task)} tasks were selected for x of shape {list(x.shape)}; select one "
                "task, or one for each entry of its first dimension"
            )
        codes = nn.functional.one_hot(self.task.to(x.device), self.tasks).to(x.dtype)
        return codes.reshape(-1, *[1] * (x.ndim - 2), self.tasks) if self.task.ndim else codes

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(gate)`."""
        return f"tasks={self.tasks}"


def select_task(model: nn.Module, task: int | Tensor) -> None:
    """Sets the task of every `TaskGate` in a model, as `TaskGate.select` does.

    Raises:
        TypeError: for anything but whole numbers.
        ValueError: if the model has no such gate, or a gate has no such task; nothing has changed
            then.
    """
    gates = [gate for gate in model.modules() if isinstance(gate, TaskGate)]
    if not gates:
        raise ValueError(
            "model has no TaskGate; add adapters with gate = pulsora.nn.TaskGate(tasks)"
        )
    min(gates, key=lambda gate: gate.tasks).select(task)
    for gate in gates:
        gate.select(task)


class LearnedGate(Gate):
    """A gate computed from each row of x by a small trained network: 2 sigmoid(W2 relu(W1 x)).

    W2 starts at 0, so that all weights are 1 at first, as without a gate.

    Args:
        in_features: Size of the last dimension of x.
        weights: Number of weights: 1, one for each adapter of the pool, or one for each component.
        hidden: Width of the hidden layer.

    Raises:
        ValueError: for sizes below 1.
    """

    def __init__(self, in_features: int, weights: int, hidden: int = 16) -> None:
        super().__init__()
        for name, size in (("in_features", in_features), ("weights", weights), ("hidden", hidden)):
            require_at_least(name, size, 1)
        # Parameters instead of layers, so that conversion of a model's layers leaves the gate
        # alone.
        first = nn.Linear(in_features, hidden)
        self.inner = nn.Parameter(first.weight.detach())
        self.inner_bias = nn.Parameter(first.bias.detach())
        self.outer = nn.Parameter(torch.zeros(weights, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the weights [..., weights], between 0 and 2."""
        inner, bias, outer = (
            each.to(x.dtype) for each in (self.inner, self.inner_bias, self.outer)
        )
        hidden = nn.functional.linear(x, inner, bias).relu()
        return 2.0 * nn.functional.linear(hidden, outer).sigmoid()

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(gate)`."""
        hidden, features = self.inner.shape
        return f"in_features={features}, weights={len(self.outer)}, hidden={hidden}"


class MixtureGate(Gate):
    """A gate with a learned coefficient for each adapter of the pool, equal for every sample.

    With frozen adapters (`GatedAdapter.freeze_factors()`), only their mixture is learned.

    Args:
        adapters: Number of adapters in the pool.
        start: Initial value of the coefficients; 1 / adapters by default.

    Raises:
        ValueError: for less than one adapter.
    """

    def __init__(self, adapters: int, start: float | None = None) -> None:
        super().__init__()
        require_at_least("adapters", adapters, 1)
        begin = 1.0 / adapters if start is None else float(start)
        self.coefficients = nn.Parameter(torch.full((adapters,), begin))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the coefficients [adapters]."""
        return self.coefficients.to(x.dtype)

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(gate)`."""
        return f"adapters={len(self.coefficients)}"
