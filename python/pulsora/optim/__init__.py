"""Optimisers for models with analog layers.

A pulsed tile takes its update from the factors (x, d) of a gradient, not from its elements:
W <- W - lr d^T x, by pulses. These optimisers do that for the analog layers among their
parameters, and leave every other parameter to an optimiser of torch:

    optimizer = AnalogSGD(model.parameters(), lr=0.1, momentum=0.9)

Several forward and backward passes before one `step()` add up to one mini-batch. `step()` uses up
the gradients of analog layers; `zero_grad()`, of the optimiser or the model, throws them away.
Learning-rate schedulers, `maximize`, `GradScaler` and clipping by norm act on both kinds of
parameters.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.factored_gradient import AnalogGradient
from pulsora.nn.autograd.optimizer_states import in_present_order
from pulsora.nn.tiles.batch_shard import SINGLE_PROCESS
from pulsora.nn.tiles.layer_update import LayerUpdate, apply_updates
from pulsora.nn.tiles.twins import warn_of_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.optim.optimizer import ParamsT


__all__ = ["AnalogAdam", "AnalogOptimizer", "AnalogSGD"]

_STEPS_BEFORE_UNREAD = 10  # until a layer that no forward pass reads is named

# Arguments that act on analog layers too, or make no difference to the rule of the update.
_NEUTRAL = {"params", "lr", "maximize", "foreach", "fused", "capturable", "differentiable"}


class _Pulses(torch.optim.Optimizer):
    """Mixin for an optimiser of torch that updates the analog parameters by pulses."""

    # Fused optimisers undo GradScaler's factor in their own kernels, which tiles do not see. With
    # False, GradScaler undoes the factor for all gradients beforehand.
    _step_supports_amp_scaling = property(lambda _: False, lambda _, __: None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            self._take_up()
            self._warn_of_ignored(self.param_groups[-1])
        except Warning:  # filters make it an error, after which nothing has changed
            self.param_groups.pop()
            raise

    def _warn_of_ignored(self, group: dict[str, Any]) -> None:
        """Warns once of each setting of a group that analog layers ignore."""
        if not any(isinstance(parameter, AnalogParameter) for parameter in group["params"]):
            return
        ignored = [
            f"{name}={group[name]}"
            for name, argument in inspect.signature(type(self)).parameters.items()
            if name in group and name not in _NEUTRAL and group[name] != argument.default
        ]
        told: set[str] = self.__dict__.setdefault("_told", set())
        if ignored and not told.issuperset(ignored):
            warnings.warn(
                f"analog layers ignore {', '.join(ignored)}: pulses follow plain SGD with the "
                "group's lr. Digital parameters use it",
                stacklevel=5,
            )
            told.update(ignored)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._take_up()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a saved state, of earlier versions and of digital runs too.

        A state of a digital run has entries for weights that are analog now. They are left out,
        with a warning.
        """
        super().load_state_dict(in_present_order(self.param_groups, state_dict))

    def _analog(self) -> Iterator[tuple[dict[str, Any], AnalogParameter]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter, AnalogParameter):
                    yield group, parameter

    def _take_up(self) -> None:
        for _, parameter in self._analog():
            parameter.optimizers.add(self)
        arrays = (parameter.array for _, parameter in self._analog())
        warn_of_twins(arrays, self.__dict__.setdefault("_told", set()), stacklevel=5)

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Updates by one mini-batch: torch's step for digital parameters, pulses for analog ones.

        Args:
            closure: As for torch's optimisers, evaluates the model again and returns the loss.

        Raises:
            ValueError: if activations or gradients of an analog layer on the CPU, or its learning
                rate, are not finite; nothing has changed then.
            RuntimeError: if a gradient of an analog layer is not what `backward()` left; nothing
                has changed then.

        What a layer refuses is raised before any layer changes. If torch's own step raises an
        error, or a signal interrupts it, the analog layers are already updated; another call makes
        the digital step alone.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        updates = self._updates()
        self._warn_of_gradients()
        self._warn_if_apart()
        # Pulses come first, because torch's step must not see the gradients of analog layers. A
        # step that is interrupted, or fails, afterwards can be made again.
        apply_updates(updates)
        self._use_up()
        self._step_digitally()
        for process_group in {update.array.process_group for update in updates}:
            process_group.stepped()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters, as torch does."""
        super().zero_grad(set_to_none)
        for _, parameter in self._analog():
            parameter.used_by = None

    def _updates(self) -> list[LayerUpdate]:
        """Returns the pulsed updates by the present gradients of analog layers."""
        updates = []
        for group, parameter in self._analog():
            if parameter.grad is None:
                continue
            gradient = _gradient(parameter)
            pairs = gradient.pairs
            if pairs and group.get("maximize"):
                pairs = gradient.scaled(-1.0).pairs
            samples = parameter.array.prepared(pairs)
            updates.append(
                LayerUpdate(parameter.array, _learning_rate(group), samples, gradient.factors)
            )
        return updates

    def _use_up(self) -> None:
        """Removes the gradients of analog layers, whose factors have become pulses."""
        for _, parameter in self._analog():
            if parameter.grad is not None:
                parameter.grad = None
                parameter.used_by = weakref.ref(self)

    def _warn_of_gradients(self) -> None:
        """Warns once of a gradient that another optimiser used up, and of layers never read."""
        told: set[str] = self.__dict__.setdefault("_told", set())
        for _, parameter in self._analog():
            user = None if parameter.used_by is None else parameter.used_by()
            if parameter.grad is None and user not in {None, self} and "used" not in told:
                told.add("used")
                warnings.warn(
                    f"the gradient of {parameter} has been used up by the step of another "
                    "optimiser, so this step sends it no pulses. Give a shared layer to one "
                    "optimiser alone, or run a backward pass before each step",
                    stacklevel=4,
                )
        steps = self.__dict__["_steps"] = self.__dict__.get("_steps", 0) + 1
        if steps != _STEPS_BEFORE_UNREAD:
            return
        unread = [each for _, each in self._analog() if not each.array.was_read]
        if unread and len(unread) < sum(1 for _ in self._analog()):
            warnings.warn(
                f"after {steps} steps, no forward pass has read the tiles of "
                f"{', '.join(map(str, unread[:3]))}{', ...' * (len(unread) > 3)}. A module that "
                "multiplies by the weight itself does not use the tiles; call the layer, or keep "
                "it digital by `exclude`",
                stacklevel=4,
            )

    def _step_digitally(self) -> None:
        digital = super().step
        if getattr(digital, "hooked", False):  # its hooks run around this method already
            digital = functools.partial(digital.__wrapped__, self)  # type: ignore[attr-defined]
        digital()

    def _warn_if_apart(self) -> None:
        """Warns once if there are several processes and each trains its own tiles."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        told: set[str] = self.__dict__.setdefault("_told", set())
        if "apart" not in told and any(
            each.array.process_group is SINGLE_PROCESS for _, each in self._analog()
        ):
            told.add("apart")
            warnings.warn(
                "several processes run, but this optimiser has analog layers that each of them "
                "trains by itself; call pulsora.distributed.prepare(model) to train one model "
                "together",
                stacklevel=4,
            )


def _learning_rate(group: dict[str, Any]) -> float:
    lr = float(group["lr"])
    if not math.isfinite(lr):
        raise ValueError(f"lr is {lr}; it must be a finite number")
    return lr


def _gradient(parameter: AnalogParameter) -> AnalogGradient:
    """Returns the gradient of a parameter that has one."""
    gradient = parameter.grad
    if not isinstance(gradient, AnalogGradient):
        raise RuntimeError(  # noqa: TRY004 - no argument has this type
            f"the gradient of {parameter} has been replaced by another tensor, but pulses are made "
            "of its factors; scale it as a whole (hooks may return grad * number), or leave it"
        )
    return gradient


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

    Raises:
        TypeError: if `optimizer` is no class of an optimiser.
        ValueError: if it cannot work with analog layers: LBFGS, whose line search needs the
            gradient as one vector, and optimisers without an lr.
    """

    def __new__(  # type: ignore[misc]
        cls, optimizer: type[torch.optim.Optimizer], parameters: ParamsT, **settings: Any
    ) -> torch.optim.Optimizer:
        """An object of a class derived from `optimizer`."""
        given: object = optimizer
        if not (isinstance(given, type) and issubclass(given, torch.optim.Optimizer)):
            raise TypeError(
                f"optimizer = {optimizer!r}: give a class of torch.optim, such as torch.optim.AdamW"
            )
        if issubclass(optimizer, torch.optim.LBFGS):
            raise ValueError(  # noqa: TRY004 - it is an optimiser
                "optimizer = LBFGS needs the gradient as one vector and goes back on its steps, "
                "which pulses cannot; choose one such as torch.optim.AdamW"
            )
        combined = type(f"Analog{optimizer.__name__}", (_Pulses, optimizer), {})
        made: torch.optim.Optimizer = combined(parameters, **settings)
        if any("lr" not in group for group in made.param_groups):
            raise ValueError(
                f"optimizer = {optimizer.__name__} has no lr, which pulses need; choose one such "
                "as torch.optim.AdamW"
            )
        return made
