"""Numbers of hooks of modules, parameters and optimisers, which a recorded step would not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora.nn.autograd.analog_parameter import AnalogParameter

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

__all__ = ["hooks", "hooks_of_parameter", "hooks_of_step"]


def hooks(module: nn.Module) -> int:
    """Counts the hooks of a module itself."""
    return (
        len(module._forward_hooks)  # noqa: SLF001 - there is no other way to ask
        + len(module._forward_pre_hooks)  # noqa: SLF001
        + len(module._backward_hooks)  # noqa: SLF001
        + len(module._backward_pre_hooks)  # noqa: SLF001
    )


def hooks_of_parameter(parameter: Tensor) -> int:
    """Counts users' hooks; a graph repeats the effect of an AnalogParameter's own hook."""
    hooks = (
        parameter._backward_hooks,  # noqa: SLF001
        getattr(parameter, "_post_accumulate_grad_hooks", None),
    )
    return sum(len(each or ()) for each in hooks) - isinstance(parameter, AnalogParameter)


def hooks_of_step(optimizer: torch.optim.Optimizer) -> int:
    """Counts the hooks around steps of an optimiser."""
    before, after = (
        optimizer._optimizer_step_pre_hooks,  # noqa: SLF001
        optimizer._optimizer_step_post_hooks,  # noqa: SLF001
    )
    return len(before) + len(after)
