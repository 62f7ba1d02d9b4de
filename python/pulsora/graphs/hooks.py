"""Numbers of hooks of modules, parameters and optimisers, which a recorded step would not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora.nn.autograd.analog_parameter import AnalogParameter

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

__all__ = ["hooks", "hooks_of_parameter", "hooks_of_step"]


def hooks(module: nn.Module) -> int:
    """Counts users' hooks of a module itself; a graph repeats the effect of those of `prepare`."""
    own = 2 if "_pulsora_process_group" in vars(module) else 0
    return (
        len(module._forward_hooks)  # noqa: SLF001 - there is no other way to ask
        + len(module._forward_pre_hooks)  # noqa: SLF001
        + len(module._backward_hooks)  # noqa: SLF001
        + len(module._backward_pre_hooks)  # noqa: SLF001
        - own
    )


def hooks_of_parameter(parameter: Tensor) -> int:
    """Counts users' hooks; a graph repeats the effect of the package's own."""
    hooks = (
        parameter._backward_hooks,  # noqa: SLF001
        getattr(parameter, "_post_accumulate_grad_hooks", None),
    )
    own = isinstance(parameter, AnalogParameter) + getattr(parameter, "_pulsora_hooks", 0)
    return sum(len(each or ()) for each in hooks) - own


def hooks_of_step(optimizer: torch.optim.Optimizer) -> int:
    """Counts the hooks around steps of an optimiser."""
    before, after = (
        optimizer._optimizer_step_pre_hooks,  # noqa: SLF001
        optimizer._optimizer_step_post_hooks,  # noqa: SLF001
    )
    return len(before) + len(after)
