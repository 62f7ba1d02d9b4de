"""Optimisers that users bring along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


class DataSGD(torch.optim.Optimizer):
    """Gradient descent that writes through `.data`, as optimisers did before torch 0.4."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self) -> None:  # type: ignore[override]
        """Makes a step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"])


class Wrapped(torch.optim.Optimizer):
    """An optimiser that lets another one make its steps."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self.inner = inner

    def step(self) -> None:  # type: ignore[override]
        """Makes a step."""
        self.inner.step()
