"""Optimisers for models with analog layers.

A pulsed tile takes its update from the pairs (x, d) of the backward pass, not from a gradient:
W <- W - lr d^T x, by pulses. These optimisers do that for the analog layers among their
parameters, and leave every other parameter to an optimiser of torch:

    optimizer = AnalogSGD(model.parameters(), lr=0.1, momentum=0.9)

Several forward and backward passes before one `step()` add up to one mini-batch. `step()` uses up
what the passes left behind; `zero_grad()` throws it away. Learning-rate schedulers act on both
kinds of parameters.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.tile_array import AnalogParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.optim.optimizer import ParamsT

__all__ = ["AnalogAdam", "AnalogOptimizer", "AnalogSGD"]

# What a group may say that makes no difference to the rule of the update.
_NEUTRAL = {"params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable"}


class _Pulses(torch.optim.Optimizer):
    """Put in front of an optimiser of torch, whose `step` passes over analog parameters."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if not any(isinstance(parameter, AnalogParameter) for parameter in group["params"]):
            return
        ignored = [
            f"{name}={value}"
            for name, value in group.items()
            if name not in _NEUTRAL and value not in (0, None)  # 0 equals False
        ]
        told: set[str] = self.__dict__.setdefault("_told", set())
        if ignored and not told.issuperset(ignored):
            told.update(ignored)
            warnings.warn(
                f"{', '.join(ignored)} do not act on analog layers: pulsed tiles follow plain SGD "
                "with the group's lr. They act on the other parameters",
                stacklevel=4,
            )

    def _arrays(self) -> Iterator[tuple[dict[str, Any], AnalogParameter]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter, AnalogParameter):
                    yield group, parameter

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One mini-batch: torch's step for digital parameters, pulses for analog ones.

        Args:
            closure: As for torch's optimisers, evaluates the model again and returns the loss.

        Raises:
            ValueError: if activations or gradients of an analog layer are not finite.
        """
        loss: float | None = super().step(closure)
        for group, parameter in self._arrays():
            parameter.array.step(float(group["lr"]))
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, and what backward passes left in the analog layers."""
        super().zero_grad(set_to_none)
        for _, parameter in self._arrays():
            parameter.array.discard()


class AnalogSGD(_Pulses, torch.optim.SGD):
    """`torch.optim.SGD`, with pulses for the analog layers. Same arguments."""


class AnalogAdam(_Pulses, torch.optim.Adam):
    """`torch.optim.Adam` for digital parameters; plain SGD by pulses, at the same lr, for tiles."""


class AnalogOptimizer:
    """Any optimiser of torch for the digital parameters, and pulses for the analog layers.

    `AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=1e-3)` is an AdamW.

    Args:
        optimizer: The class of the digital optimiser; its groups must have an lr.
        parameters: As for the optimiser.
        **settings: As for the optimiser.
    """

    def __new__(  # type: ignore[misc]
        cls, optimizer: type[torch.optim.Optimizer], parameters: ParamsT, **settings: Any
    ) -> torch.optim.Optimizer:
        """An object of a class derived from `optimizer`."""
        combined = type(f"Analog{optimizer.__name__}", (_Pulses, optimizer), {})
        made: torch.optim.Optimizer = combined(parameters, **settings)
        return made
