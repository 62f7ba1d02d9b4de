"""Optimisers for models with analog layers.

A pulsed tile takes its update from the factors (x, d) of a gradient, not from its elements:
W <- W - lr d^T x, by pulses. These optimisers do that for the analog layers among their
parameters, and leave every other parameter to an optimiser of torch:

    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    optimizer = AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=1e-3, analog_lr=0.4)

Several forward and backward passes before one `step()` add up to one mini-batch. `step()` uses up
the gradients of analog layers; `zero_grad()`, of the optimiser or the model, throws them away.
Learning-rate schedulers, `maximize`, `GradScaler` and clipping by norm act on both kinds of
parameters.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import distributed as dist

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.factored_gradient import checked
from pulsora.nn.autograd.optimizer_groups import (
    ignored,
    learning_rate,
    parted,
    rate,
    shares_lr,
    signature,
)
from pulsora.nn.autograd.optimizer_states import in_present_order
from pulsora.nn.tiles.batch_shard import SINGLE_PROCESS
from pulsora.nn.tiles.layer_names import named_errors, set_names
from pulsora.nn.tiles.layer_update import LayerUpdate, apply_updates
from pulsora.nn.tiles.twins import warn_of_twins
from pulsora.optim.classes import with_pulses
from pulsora.optim.in_backward import BackwardPulses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.optim.optimizer import ParamsT

__all__ = ["AnalogAdam", "AnalogOptimizer", "AnalogSGD"]

_Analog: TypeAlias = "Sequence[tuple[dict[str, Any], AnalogParameter]]"  # groups, parameters

_STEPS_BEFORE_UNREAD = 10  # until a layer that no forward pass reads is named


class _Pulses(torch.optim.Optimizer):
    """Mixin for an optimiser of torch that updates the analog parameters by pulses."""

    # Fused optimisers undo GradScaler's factor in their own kernels, which tiles do not see. With
    # False, GradScaler undoes the factor for all gradients beforehand.
    _step_supports_amp_scaling = property(lambda _: False, lambda _, __: None)

    analog_lr: float | None = None
    """The lr of analog parameters; None where the lr of their groups holds for them too."""

    _kind: ClassVar[type[torch.optim.Optimizer]]  # torch's optimiser for the digital parameters
    _withheld: list[list[Tensor]] | None = None  # all parameters, while torch's constructor runs
    _made_at = 3  # stacklevel, from `_take_up` on, of the line that makes the optimiser
    _in_backward: BackwardPulses | None = None
    _shares_lr = False  # whether analog parameters have the lr of an adaptive optimiser
    _steps = 0

    @functools.cached_property
    def _told(self) -> set[str]:
        """Warnings that this optimiser has given."""
        return set()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._kind = next(
            each
            for each in cls.__mro__
            if issubclass(each, torch.optim.Optimizer) and not issubclass(each, _Pulses)
        )
        if "__init__" not in cls.__dict__:
            cls.__signature__ = signature(cls._kind)  # type: ignore[attr-defined]

    def __init__(
        self,
        *arguments: Any,
        analog_lr: float | Tensor | None = None,
        in_backward: bool = False,
        **settings: Any,
    ) -> None:
        self.analog_lr = rate(analog_lr)
        self._in_backward = BackwardPulses(self) if in_backward else None
        # Constructors of torch make states for all parameters (Adagrad), or look at their values.
        self._withheld = []
        super().__init__(*arguments, **settings)
        self._give_back()
        self._withheld = None
        if any("lr" not in group for group in self.param_groups):
            raise ValueError(
                f"optimizer = {self._kind.__name__} has no lr, which pulses need; choose one such "
                "as torch.optim.AdamW"
            )
        self._take_up(stacklevel=self._made_at)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters, as in torch.

        If there is an `analog_lr`, of the optimiser or as a key of the group, the analog parameters
        become a group of their own with this lr. A group of analog parameters alone keeps an lr
        that it has.
        """
        before = len(self.param_groups)
        self._give_back()
        shares_before = self._shares_lr
        try:
            for part in parted(param_group, self.analog_lr):
                has_lr = "lr" in part
                super().add_param_group(part)
                self._shares_lr |= shares_lr(self._kind, self.param_groups[-1], has_lr=has_lr)
            if self._withheld is None:
                self._take_up(stacklevel=3)
        except BaseException:  # filters make warnings errors, after which nothing has changed
            del self.param_groups[before:]
            self._shares_lr = shares_before
            raise
        if self._withheld is not None:
            self._withheld = [group["params"] for group in self.param_groups]
            for group in self.param_groups:
                group["params"] = [
                    each for each in group["params"] if not isinstance(each, AnalogParameter)
                ]

    def _give_back(self) -> None:
        """Puts the analog parameters back into their groups."""
        for group, parameters in zip(self.param_groups, self._withheld or (), strict=False):
            group["params"] = parameters

    def __getstate__(self) -> dict[str, Any]:
        own = {"analog_lr": self.analog_lr, "_in_backward": self._in_backward is not None}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        in_backward = state.pop("_in_backward", False)
        super().__setstate__(state)
        self._in_backward = BackwardPulses(self) if in_backward else None
        self._take_up(stacklevel=3)

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

    def _take_up(self, stacklevel: int) -> None:
        """Marks the analog parameters as trained, and warns of what they do not follow."""
        if self._in_backward:
            self._in_backward.attach(parameter for _, parameter in self._analog())
        for group, parameter in self._analog():
            parameter.optimizers.add(self)
            names = group.get("param_names") or ()  # of model.named_parameters()
            known = [
                name.removesuffix("analog_weight").rstrip(".")
                for name, each in zip(names, group["params"], strict=False)
                if each is parameter
            ]
            set_names((name, parameter.array) for name in known)
        warn_of_twins((each.array for _, each in self._analog()), self._told, stacklevel)
        self._warn_of_ignored(stacklevel + 1)
        if self._shares_lr and "lr" not in self._told:
            warnings.warn(
                f"analog layers train by plain SGD with the lr of {self._kind.__name__}, which "
                "suits adaptive steps and is mostly far too small for pulses; give analog_lr, such "
                "as analog_lr=0.4, for the analog layers alone",
                stacklevel=stacklevel,
            )
            self._told.add("lr")

    def _warn_of_ignored(self, stacklevel: int) -> None:
        """Warns once of each setting that analog layers ignore."""
        if found := ignored(self._kind, self.param_groups, self._told):
            named = ", ".join(f"{name}={value}" for name, value in found.items())
            warnings.warn(
                f"analog layers ignore {named}: pulses follow plain SGD with the group's lr. "
                "Digital parameters use it",
                stacklevel=stacklevel,
            )
            self._told.update(found)

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Updates by one mini-batch: torch's step for digital parameters, pulses for analog ones.

        Args:
            closure: As for torch's optimisers, evaluates the model again and returns the loss.

        Raises:
            ValueError: if activations or gradients of an analog layer on the CPU, or its learning
                rate, are not finite; nothing has changed then.
            RuntimeError: if a gradient of an analog layer is not what `backward()` left, or
                another process has gradients of other analog layers or makes no step (where torch
                has gloo, by which processes compare this); nothing has changed then.

        What a layer refuses is raised before any layer changes. If torch's own step raises an
        error, or a signal interrupts it, the analog layers are already updated; another call makes
        the digital step alone.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        analog = list(self._analog())
        updates = self._updates(analog)
        self._warn_of_gradients(analog)
        self._warn_of_ignored(stacklevel=5)  # before the pulses, because filters make it an error
        self._warn_if_apart()
        updated = [update.array for update in updates if update.samples]
        for process_group in {each.array.process_group for _, each in analog}:
            process_group.agree_on_step(updated)
        # Pulses come first, because torch's step must not see the gradients of analog layers. A
        # step that is interrupted, or fails, afterwards can be made again.
        apply_updates(updates)
        self._use_up(analog)
        if self._in_backward:
            self._in_backward.begin()
        self._step_digitally()
        for process_group in {update.array.process_group for update in updates}:
            process_group.stepped()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters, as torch does."""
        super().zero_grad(set_to_none)
        for _, parameter in self._analog():
            parameter.used_by = None

    def _updates(
        self, analog: _Analog, rates: Mapping[int, float] | None = None
    ) -> list[LayerUpdate]:
        """Returns the pulsed updates by the present gradients of analog layers.

        `rates` has learning rates by the ids of groups; by default they are those of the groups.
        """
        updates = []
        for group, parameter in analog:
            found = parameter.grad
            if found is None or (self._in_backward and self._in_backward.has_updated(parameter)):
                continue
            with named_errors(parameter.array):
                gradient = checked(found)
                pairs = gradient.pairs
                if pairs and group.get("maximize"):
                    pairs = gradient.scaled(-1.0).pairs
                samples = parameter.array.prepared(pairs)
                lr = learning_rate(group) if rates is None else rates[id(group)]
            updates.append(LayerUpdate(parameter.array, lr, samples, gradient.factors))
        return updates

    def _use_up(self, analog: _Analog) -> None:
        """Removes the gradients of analog layers, whose factors have become pulses."""
        for _, parameter in analog:
            if parameter.grad is not None:
                parameter.grad = None
                parameter.used_by = weakref.ref(self)

    def _warn_of_gradients(self, analog: _Analog) -> None:
        """Warns once of a gradient that another optimiser used up, and of layers never read."""
        for _, parameter in analog:
            if parameter.used_by is None or parameter.grad is not None or "used" in self._told:
                continue
            if parameter.used_by() not in {None, self}:
                self._told.add("used")
                warnings.warn(
                    f"the gradient of {parameter.described} has been used up by the step of "
                    "another optimiser, so this step sends it no pulses. Give a shared layer to "
                    "one optimiser alone, or run a backward pass before each step",
                    stacklevel=4,
                )
        self._steps += 1
        if self._steps != _STEPS_BEFORE_UNREAD:
            return
        unread = [each for _, each in analog if each.requires_grad and not each.array.was_read]
        if unread and any(each.array.was_read for _, each in analog):
            warnings.warn(
                f"after {self._steps} steps, no forward pass has read the tiles of "
                f"{', '.join(each.described for each in unread[:3])}"
                f"{', ...' if len(unread) > 3 else ''}. A module that multiplies by the weight "
                "itself does not use the tiles; call the layer, or keep it digital by `exclude`",
                stacklevel=4,
            )

    def _step_digitally(self) -> None:
        self._warn_of_ignored(stacklevel=5)  # schedulers and users change settings between steps
        digital = super().step
        if getattr(digital, "hooked", False):  # its hooks run around this method already
            digital = functools.partial(digital.__wrapped__, self)  # type: ignore[attr-defined]
        digital()

    def _warn_if_apart(self) -> None:
        """Warns once if there are several processes and each trains its own tiles."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        if "apart" not in self._told and any(
            each.array.process_group is SINGLE_PROCESS for _, each in self._analog()
        ):
            self._told.add("apart")
            warnings.warn(
                "several processes run, but this optimiser has analog layers that each of them "
                "trains by itself; call pulsora.distributed.prepare(model) to train one model "
                "together",
                stacklevel=4,
            )


class AnalogSGD(_Pulses, torch.optim.SGD):
    """`torch.optim.SGD`, with pulses for the analog layers.

    Args:
        params: As for torch's SGD.
        **settings: As for torch's SGD: lr, momentum and others.
        analog_lr: See `AnalogOptimizer`.
        in_backward: See `AnalogOptimizer`.
    """


class AnalogAdam(_Pulses, torch.optim.Adam):
    """`torch.optim.Adam` for digital parameters; plain SGD by pulses for analog layers.

    Args:
        params: As for torch's Adam.
        **settings: As for torch's Adam: lr, betas and others.
        analog_lr: See `AnalogOptimizer`.
        in_backward: See `AnalogOptimizer`.
    """


class AnalogOptimizer:
    """Any optimiser of torch for the digital parameters, and pulses for the analog layers.

    `AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=1e-3, analog_lr=0.4)` is an AdamW.

    Args:
        optimizer: The class of the digital optimiser; its groups must have an lr.
        parameters: As for the optimiser.
        analog_lr: The lr of the analog layers, finite and at least 0. Each group with parameters of
            both kinds is then parted in two, and schedulers act on both. Groups may have an
            `analog_lr` of their own; a group of analog parameters alone keeps an lr that it has.
            By default analog layers train with the lr of their group, and a warning says so if the
            optimiser is adaptive.
        in_backward: Whether an analog layer gets its pulses in the backward pass, as soon as its x
            and d are known, which then are freed. The bits are those of `step()`, which is still to
            be called after each backward pass. RuntimeErrors refuse a second backward pass before
            the step (accumulation), clipping by norm and GradScaler, which come too late.
        **settings: As for the optimiser.

    Raises:
        TypeError: if `optimizer` is no class of an optimiser.
        ValueError: if it cannot work with analog layers: LBFGS, whose line search needs the
            gradient as one vector, and optimisers without an lr; or for a bad `analog_lr`.
    """

    def __new__(  # type: ignore[misc]
        cls,
        optimizer: type[torch.optim.Optimizer],
        parameters: ParamsT,
        *,
        analog_lr: float | Tensor | None = None,
        in_backward: bool = False,
        **settings: Any,
    ) -> torch.optim.Optimizer:
        """An object of a class derived from `optimizer`, such as AnalogSGD for torch.optim.SGD."""
        own = {torch.optim.SGD: AnalogSGD, torch.optim.Adam: AnalogAdam}
        combined: type[_Pulses] = with_pulses(optimizer, _Pulses, own)
        made = combined.__new__(combined)
        made._made_at = 4  # noqa: SLF001 - this method is between
        made.__init__(  # type: ignore[misc]
            parameters, analog_lr=analog_lr, in_backward=in_backward, **settings
        )
        return made
