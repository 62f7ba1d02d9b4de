"""Pulses in the backward pass: x and d of a layer are used up as soon as both are known."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.factored_gradient import AnalogGradient
from pulsora.nn.tiles.batch_shard import SINGLE_PROCESS
from pulsora.nn.tiles.layer_update import apply_updates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from pulsora.nn.autograd.analog_parameter import AnalogParameter

__all__ = ["BackwardPulses"]

_USED = (
    "the gradient of an analog layer has become pulses in the backward pass (in_backward=True), so "
    "that it can no longer be read or scaled; clip by norm, and use GradScaler, with "
    "in_backward=False"
)


class BackwardPulses:
    """Hooks that update analog parameters in the backward pass, each once before a step.

    They last as long as this object, which its optimiser alone holds.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._hooks: dict[int, RemovableHandle] = {}
        self._done: set[int] = set()

    def attach(self, parameters: Iterable[AnalogParameter]) -> None:
        """Hooks parameters that are not hooked yet."""
        for parameter in parameters:
            if id(parameter) not in self._hooks:
                hooked: Any = parameter
                hook = functools.partial(_pulse, weakref.ref(self))
                self._hooks[id(parameter)] = hooked.register_post_accumulate_grad_hook(hook)

    def has_updated(self, parameter: AnalogParameter) -> bool:
        """Whether the parameter has got its pulses since the last step."""
        return id(parameter) in self._done

    def begin(self) -> None:
        """Begins a new step, for which each parameter may get pulses again."""
        self._done.clear()

    def pulse(self, parameter: AnalogParameter) -> None:
        """Updates a parameter by the gradient that a backward pass has left.

        Raises:
            RuntimeError: if it was updated since the last step, if it belongs to several processes,
                or if a CUDA graph is captured; nothing has changed then.
        """
        gradient = parameter.grad
        if not isinstance(gradient, AnalogGradient):
            return
        if self.has_updated(parameter):
            raise RuntimeError(
                f"a second backward pass has reached {parameter.described} before step(), but "
                "in_backward=True makes the pulses of a layer in the backward pass; call step() "
                "after each backward pass, or accumulate gradients with in_backward=False"
            )
        if parameter.array.process_group is not SINGLE_PROCESS:
            raise RuntimeError(
                f"{parameter.described} is trained by several processes, which agree on a step "
                "before its pulses; set in_backward=False"
            )
        if gradient.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a training step is being recorded, whose pulses belong to step(); set "
                "in_backward=False"
            )
        optimizer: Any = self._optimizer()  # of this package, which imports this module
        found = [
            (group, each)
            for group, each in (() if optimizer is None else optimizer._analog())  # noqa: SLF001
            if each is parameter
        ]
        if not found:
            return
        apply_updates(optimizer._updates(found))  # noqa: SLF001
        gradient.factors.drop(_USED)
        self._done.add(id(parameter))


def _pulse(pulses: weakref.ref[BackwardPulses], parameter: Tensor) -> None:
    alive = pulses()
    if alive is not None:
        alive.pulse(parameter)  # type: ignore[arg-type]
